"""Servers that are too old, down, loading, read-only or set up to forget; and URLs that make no sense."""

import os
import re
import threading
import warnings
from pathlib import Path

import pytest
import redis

from redis_acker import Acker, new_edges
from redis_acker.errors import BadInput, EvictionWarning, ServerUnavailable, UnsupportedServer
from tests.backends import Keeper, Servers
from tests.servers import EVERY_WRITE_TO_DISK, start_server
from tests.store.connect.fake_server import FakeServer, bulk, unused_port
from tests.store.connect.ledger import ONE_SERVER_KINDS, completed, start_roots
from tests.waiting import wait_until


def old_server(command: list[bytes]) -> bytes:
    if command[0].upper() == b"INFO":
        return bulk("# Server\r\nredis_version:5.0.0\r\nmaxmemory_policy:noeviction\r\n")
    return b"-ERR unknown command\r\n"


def test_a_server_that_is_too_old_is_refused_with_its_version(keeper: Keeper, namespace: str) -> None:
    server = keeper.keep(FakeServer(old_server))
    with pytest.raises(UnsupportedServer, match=r"has version 5\.0\.0: use Redis 6\.2 or later, or Valkey"):
        Acker(server.url, namespace=namespace)
    assert b"EVALSHA" not in server.commands


def test_the_second_of_two_servers_may_not_be_too_old_either(servers: Servers, keeper: Keeper, namespace: str) -> None:
    old = keeper.keep(FakeServer(old_server))
    with pytest.raises(UnsupportedServer, match=re.escape(old.url)):
        Acker([servers.get("redis-7.0").url, old.url], namespace=namespace)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
@pytest.mark.parametrize("kind", ONE_SERVER_KINDS)
def test_a_server_that_may_evict_pending_roots_gives_a_warning(
    kind: str, policy: str, keeper: Keeper, namespace: str
) -> None:
    server = keeper.keep(start_server(kind, "--maxmemory", "100mb", "--maxmemory-policy", policy))
    with pytest.warns(EvictionWarning, match=f"maxmemory-policy {policy}.*set maxmemory-policy noeviction") as caught:
        Acker(server.url, namespace=namespace).close()
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    "config",
    [
        ["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"],
        ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"],
        ["--maxmemory", "0", "--maxmemory-policy", "allkeys-lru"],
    ],
)
def test_a_server_that_never_evicts_our_keys_gives_no_warning(
    config: list[str], keeper: Keeper, namespace: str
) -> None:
    server = keeper.keep(start_server("redis-7.0", *config))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Acker(server.url, namespace=namespace).close()


def test_a_server_that_is_down_is_named_without_its_password(namespace: str) -> None:
    port = unused_port()
    with pytest.raises(ServerUnavailable) as caught:
        Acker(f"redis://me:geheim@127.0.0.1:{port}/0", namespace=namespace, retry_for_s=0.2)
    assert f"redis://me:***@127.0.0.1:{port}/0 did not answer within 0.2 s" in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_server_that_goes_down_later_is_named_with_the_token_to_go_on_with(keeper: Keeper, namespace: str) -> None:
    server = keeper.keep(start_server("redis-7.0", *EVERY_WRITE_TO_DISK))
    with Acker(server.url, namespace=namespace, retry_for_s=0.2) as acker:
        roots, edges = start_roots(acker, 100)
        children = new_edges(100)
        server.kill()
        with pytest.raises(ServerUnavailable, match=re.escape(server.url)) as caught:
            acker.ack(roots, edges ^ children)
        server.restart()
        assert caught.value.token is not None
        # What is sent in between does not make the batch look like an old one.
        assert acker.ack(roots, children).completed == 0
        assert acker.ack(roots, edges ^ children, token=caught.value.token).completed == 100
        assert acker.ack(roots, edges ^ children, token=caught.value.token).completed == 0
        assert completed(acker) == roots.tolist()


def test_a_server_that_comes_up_in_time_is_waited_for(keeper: Keeper, namespace: str) -> None:
    server = keeper.keep(start_server("redis-7.0"))
    server.kill()
    opened: list[Acker] = []
    opening = threading.Thread(target=lambda: opened.append(Acker(server.url, namespace=namespace, retry_for_s=30)))
    opening.start()
    server.restart()
    opening.join()
    with opened[0] as acker:
        start_roots(acker, 10)


def test_a_server_that_hangs_for_a_moment_is_waited_for(
    keeper: Keeper, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redis_acker.store.connect.SOCKET_TIMEOUT_S", 0.2)
    server = keeper.keep(start_server("redis-7.0"))
    with Acker(server.url, namespace=namespace) as acker:
        roots, edges = start_roots(acker, 100)
        server.pause()
        results: list[int] = []
        acking = threading.Thread(target=lambda: results.append(acker.ack(roots, edges).applied))
        acking.start()
        wait_until(lambda: acker.shards.transport.troubles >= 2)
        server.resume()
        acking.join()
        # The server has got the batch several times by now.
        assert completed(acker) == roots.tolist()
        assert acker.pending_count() == 0


@pytest.mark.parametrize("kind", ONE_SERVER_KINDS)
def test_a_server_that_is_loading_its_data_is_waited_for(
    kind: str, keeper: Keeper, namespace: str, tmp_path: Path
) -> None:
    delay_us = "50000"
    server = keeper.keep(start_server(kind, "--key-load-delay", delay_us, directory=tmp_path))
    with Acker(server.url, namespace=namespace, retry_for_s=30, timeout_ms=120_000) as acker, server.client() as client:
        roots, edges = start_roots(acker, 100)
        # A server that loads looks after its clients once in 2 MiB.
        client.mset({f"filler:{i}": os.urandom(1 << 20) for i in range(20)})
        client.save()
        restarting = threading.Thread(target=server.restart)
        restarting.start()
        wait_until(lambda: is_loading(client))
        assert acker.ack(roots, edges).completed == 100
        assert acker.shards.transport.troubles > 0
        restarting.join()
        with Acker(server.url, namespace=namespace, create=False) as late:
            assert completed(late) == roots.tolist()


def is_loading(client: redis.Redis) -> bool:
    try:
        return bool(client.info("persistence")["loading"])
    except redis.ConnectionError:
        return False


@pytest.mark.parametrize("kind", ONE_SERVER_KINDS)
def test_a_server_that_is_read_only_for_a_moment_is_waited_for(kind: str, keeper: Keeper, namespace: str) -> None:
    server = keeper.keep(start_server(kind))
    with Acker(server.url, namespace=namespace, retry_for_s=30, timeout_ms=120_000) as acker, server.client() as client:
        roots, edges = start_roots(acker, 100)
        client.replicaof("127.0.0.1", unused_port())
        results: list[int] = []
        acking = threading.Thread(target=lambda: results.append(acker.ack(roots, edges).completed))
        acking.start()
        wait_until(lambda: acker.shards.transport.troubles > 0)
        client.replicaof("NO", "ONE")
        acking.join()
        assert results == [100]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "localhost:6379",
        "http://localhost",
        "REDIS://localhost",
        "redis://localhost:port",
        "redis://localhost:6379,localhost:6380",
        "redis://localhost:6379/orders",
        "redis://localhost:6379?no_such_option=1",
        "redis+cluster://localhost:port",
        "redis+cluster://localhost:6379/3",
        "redis+other://localhost",
    ],
)
def test_a_url_that_makes_no_sense_is_refused_with_the_accepted_forms(url: str, namespace: str) -> None:
    with pytest.raises(BadInput) as caught:
        Acker(url, namespace=namespace, retry_for_s=0)
    for form in ("redis://", "rediss://", "unix://", "redis+cluster://", "redis+sentinel://", "embedded"):
        assert form in str(caught.value)


@pytest.mark.parametrize("target", [5, object(), [], [None], ["redis://localhost", 5], {"url": "redis://localhost"}])
def test_what_is_neither_url_nor_client_is_refused(target: object) -> None:
    with pytest.raises(BadInput, match="redis://host:port"):
        Acker(target)  # type: ignore[arg-type]


def test_an_embedded_server_beside_others_is_refused(servers: Servers) -> None:
    with pytest.raises(BadInput, match="cannot be combined"):
        Acker(["embedded", servers.get("redis-7.0").url])


def test_urls_and_clients_cannot_be_mixed(servers: Servers) -> None:
    url = servers.get("redis-7.0").url
    with redis.Redis.from_url(url) as client, pytest.raises(BadInput, match="not both"):
        Acker([url, client])


def test_a_client_that_decodes_replies_is_refused(servers: Servers) -> None:
    url = servers.get("redis-7.0").url
    with redis.Redis.from_url(url, decode_responses=True) as client, pytest.raises(BadInput, match="decode_responses"):
        Acker(client)
