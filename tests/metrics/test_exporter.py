"""The endpoint: shared readings, outages, ports in use, clients that say nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from redis_acker import Acker, new_edges
from redis_acker.errors import BadInput
from redis_acker.metrics import exporter
from redis_acker.metrics.exporter import MOST_CLIENTS, MetricsServer, StoreCollector, serve_metrics
from redis_acker.views.overview import Overview, read_overview
from tests.metrics.scraping import Scrape
from tests.servers import Server
from tests.waiting import wait_until


@pytest.fixture
def acker(durable_server: Server) -> Iterator[Acker]:
    with Acker(durable_server.url, retry_for_s=0.1) as found:
        found.init(found.allocate("orders", 10), new_edges(10))
        yield found


def test_a_program_serves_the_metrics_of_its_acker(acker: Acker) -> None:
    with serve_metrics(acker, port=0) as served:
        assert Scrape.of(served.url).total("pending", namespace="default", spout="orders") == 10
    with pytest.raises(OSError, match="refused"):
        Scrape.of(served.url)


def test_scrapes_at_the_same_time_share_one_reading(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = []

    def read(*args: Any, **options: Any) -> Overview:
        readings.append(args)
        return read_overview(*args, **options)

    monkeypatch.setattr(exporter, "read_overview", read)
    with MetricsServer(StoreCollector(acker, fresh_for_s=60), port=0) as served:
        threads = [threading.Thread(target=Scrape.of, args=(served.url,)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(readings) == 1


def test_a_store_that_is_away_is_a_metric_and_comes_back_by_itself(
    durable_server: Server, acker: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="redis_acker.metrics")
    with MetricsServer(StoreCollector(acker, fresh_for_s=0), port=0) as served:
        durable_server.kill()
        away = [Scrape.of(served.url) for _ in range(2)]
        assert [(one.total("up"), one.names()) for one in away] == [(0, {"redis_acker_up"})] * 2
        durable_server.restart()
        wait_until(lambda: Scrape.of(served.url).total("up") == 1)
        assert Scrape.of(served.url).total("pending") == 10
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in said] == ["The store cannot be read", "The store can be read again."]


def test_an_error_of_any_kind_is_a_store_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Acker:
        raise SystemError("bad argument")

    collector = StoreCollector(broken, namespace="shop", fresh_for_s=0)
    assert [Scrape(collector.collect()).total("up", namespace="shop") for _ in range(2)] == [0, 0]
    assert caplog.messages == ["The store cannot be read: SystemError: bad argument"]


def test_a_store_that_comes_later_is_read_then(durable_server: Server, acker: Acker) -> None:
    collector = StoreCollector(
        lambda: Acker(durable_server.url, create=False, retry_for_s=0.1), namespace="default", fresh_for_s=0
    )
    durable_server.kill()
    assert Scrape(collector.collect()).total("up", namespace="default") == 0
    durable_server.restart()
    assert Scrape(collector.collect()).total("pending") == 10


def test_a_port_in_use_is_said_in_one_sentence(acker: Acker) -> None:
    with serve_metrics(acker, port=0) as served, pytest.raises(BadInput, match=f"port {served.port} .*in use.*choose"):
        serve_metrics(acker, port=served.port)


@pytest.mark.parametrize("address", ["not an address", "203.0.113.7"])
def test_an_address_of_another_machine_is_refused(acker: Acker, address: str) -> None:
    with pytest.raises(BadInput, match=f"Cannot listen on {address}"):
        serve_metrics(acker, port=0, address=address)


def test_clients_beyond_the_bound_are_cut_off_at_once(acker: Acker) -> None:
    with serve_metrics(acker, port=0) as served:
        silent = [socket.create_connection(("127.0.0.1", served.port), timeout=30) for _ in range(MOST_CLIENTS + 1)]
        assert silent[-1].recv(1) == b""
        silent[0].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert silent[0].recv(15) == b"HTTP/1.0 200 OK"
        for one in silent:
            one.close()
        wait_until(lambda: is_answered(served.url), 30)


def is_answered(url: str) -> bool:
    try:
        return Scrape.of(url).total("up") == 1
    except OSError:
        return False


def test_a_client_that_says_nothing_is_cut_off_and_holds_nobody_up(
    acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter._Handler, "timeout", 0.2)
    with serve_metrics(acker, port=0) as served, socket.create_connection(("127.0.0.1", served.port)) as silent:
        assert Scrape.of(served.url).total("up") == 1
        silent.settimeout(30)
        assert silent.recv(1) == b""
