"""Inits that arrive when everybody has given them up."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import TooLate
from redis_acker.store import server_clocks
from redis_acker.store.scripts import script
from tests.proxy import CuttingProxy
from tests.servers import Server, start_server
from tests.waiting import wait_until

TIMEOUT_MS = 4000


@pytest.fixture(params=["redis-7.0", "valkey-9.1", "redis-6.2"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    found = start_server(request.param)
    yield found
    found.stop()


@pytest.fixture
def acker(server: Server) -> Iterator[Acker]:
    with Acker(server.url, timeout_ms=TIMEOUT_MS) as found:
        yield found


def test_a_copy_of_an_init_that_was_held_back_does_not_revive_what_is_finished_and_forgotten(server: Server) -> None:
    with CuttingProxy("127.0.0.1", server.port) as proxy, Acker(proxy.url, timeout_ms=TIMEOUT_MS) as acker:
        roots, edges = acker.allocate("orders", 20), new_edges(20)
        proxy.hold_request(script("init").sha.encode())
        assert acker.init(roots, edges, message_ids=list(range(20))).initialised == 20, "by the copy that is sent again"
        assert len(proxy.held) == 1
        acker.ack(roots, edges)
        assert acker.inspect(int(roots[0])).state == "finished"
        with Rotator(acker).start():
            wait_until(lambda: acker.inspect(int(roots[0])).state == "unknown", 60)
            assert b"TOOLATE" in proxy.deliver_late()
        [spout] = acker.stats().spouts
        assert (spout.initialised, spout.completed, spout.pending) == (20, 20, 0)


def test_an_init_that_the_server_has_not_seen_for_too_long_is_refused(server: Server, acker: Acker) -> None:
    roots, edges = acker.allocate("orders", 5), new_edges(5)
    acker.init(acker.allocate("orders", 1), new_edges(1))  # so that the clock is known
    acker.shards.clocks._allowed_ms = -60_000
    with pytest.raises(TooLate, match="refused an init"):
        acker.init(roots, edges)
    assert acker.inspect(int(roots[0])).state == "unknown"


@pytest.mark.parametrize("step_ms", [-3_600_000, -10_000, 10_000])
def test_a_server_whose_clock_was_set_gets_inits_as_before(acker: Acker, step_ms: int) -> None:
    acker.init(acker.allocate("orders", 1), new_edges(1))
    ((ahead_ms, again_s),) = acker.shards.clocks._ahead_ms.values()
    acker.shards.clocks._ahead_ms[0] = ahead_ms + step_ms, again_s
    assert acker.init(acker.allocate("orders", 5), new_edges(5)).initialised == 5


def test_a_clock_is_asked_once_a_minute_and_again_if_the_answer_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, asked, took_s = [100.0], [], [0.0]
    monkeypatch.setattr(server_clocks, "SYSTEM_CLOCK", SimpleNamespace(monotonic_s=lambda: now_s[0]))

    def ask_ms(shard: int) -> int:
        asked.append(shard)
        now_s[0] += took_s[0]
        return 1_000_000 * shard

    clocks = server_clocks.ServerClocks(ask_ms, timeout_ms=8000)
    assert [clocks.until_ms(shard) for shard in (1, 2, 1, 2)] == [1_006_000, 2_006_000] * 2
    now_s[0] += 2
    assert clocks.until_ms(1) == 1_008_000
    assert clocks.until_ms(1, since_s=101.0) == 1_007_000
    assert asked == [1, 2]
    now_s[0], took_s[0] = now_s[0] + server_clocks.LEARN_EVERY_S, 1.0
    assert clocks.until_ms(1) == clocks.until_ms(1) == 1_007_000, "too far by the time that the question took"
    assert asked == [1, 2, 1, 1]
    assert clocks.have_changed(), "this one stands still"
