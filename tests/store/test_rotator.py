"""The rotator: in the foreground, and as a thread that outlives trouble with its server."""

import logging
import threading
from collections.abc import Iterator

import pytest

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import ServerUnavailable
from redis_acker.store import rotator as rotator_module
from redis_acker.store.rotator import Rotation
from redis_acker.store.transport import Command
from redis_acker.testing import fake_redis
from tests.clock import Clock
from tests.servers import Server, start_server
from tests.waiting import wait_until

TICK_MS = 15_000


def start(acker: Acker, count: int) -> list[int]:
    roots = acker.allocate("orders", count)
    acker.init(roots, new_edges(count))
    return [int(root) for root in roots]


def test_a_round_says_what_it_did_and_when_the_next_is_due(acker: Acker, clock: Clock) -> None:
    rotator = Rotator(acker)
    start(acker, 5)
    acker.ack(acker.allocate("orders", 3), new_edges(3))
    assert rotator.once() == Rotation(turned=0, expired=0, orphans=0, due_in_ms=TICK_MS)
    clock.advance(TICK_MS + 100)
    assert rotator.once() == Rotation(turned=1, expired=0, orphans=0, due_in_ms=TICK_MS - 100)
    clock.advance(3 * TICK_MS)
    assert rotator.once() == Rotation(turned=3, expired=5, orphans=1, due_in_ms=TICK_MS - 100)


def test_after_a_year_without_rotator_all_that_is_due_expires_in_a_few_steps(acker: Acker, clock: Clock) -> None:
    roots = start(acker, 5)
    clock.advance(TICK_MS - 1)
    acker.extend(roots[:1])
    clock.advance(365 * 24 * 3600 * 1000)
    rotation = Rotator(acker).once()
    assert (rotation.expired, rotation.due_in_ms) == (5, 0)
    assert rotation.turned <= acker.settings.buckets + 2
    start(acker, 3)
    clock.advance(3 * TICK_MS)
    assert Rotator(acker).once().expired == 3


def test_every_shard_is_rotated(namespace: str, clock: Clock) -> None:
    with Acker(fake_redis(), namespace=namespace, shards=5, block_size=1, clock=clock) as acker:
        start(acker, 50)
        clock.advance(3 * TICK_MS)
        rotation = Rotator(acker).once()
        assert (rotation.turned, rotation.expired) == (15, 50)
        assert [shard.tick for shard in acker.stats().shards] == [3] * 5


def test_a_drain_takes_more_blocks_than_one_call_carries(namespace: str, clock: Clock) -> None:
    for block_size, count in ((1, 1500), (1024, 30_000)):
        with Acker(fake_redis(), namespace=f"{namespace}{block_size}", block_size=block_size, clock=clock) as acker:
            start(acker, count)
            clock.advance(3 * TICK_MS)
            assert Rotator(acker).once().expired == count
            assert acker.pending_count() == 0


def test_a_drain_that_stopped_half_way_is_finished_by_another(
    acker: Acker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotator_module, "DRAIN_COST", 4)
    for _ in range(9):
        start(acker, 1)
    for _ in range(3):
        clock.advance(TICK_MS)
        acker.shards.rotate(0, TICK_MS)
    run, calls = acker.shards.transport.run, []

    def run_a_little(commands: list[Command], **options: float) -> list[object]:
        listed = list(commands)
        calls.append(listed)
        if any(command.script and command.script.name == "drain" for command in listed):
            run(listed[:1])
            raise ServerUnavailable("The server did not answer.")
        return run(listed)

    monkeypatch.setattr(acker.shards.transport, "run", run_a_little)
    with pytest.raises(ServerUnavailable):
        Rotator(acker).drain(0)
    monkeypatch.undo()
    assert 0 < acker.pending_count() < 9
    left = acker.pending_count()
    assert Rotator(acker).drain(0) == (left, 0)
    with acker.failures("orders") as reader:
        assert sum(len(failure) for failure in reader.consume()) == 9


def test_rotators_in_turn_make_each_step_once(acker: Acker, clock: Clock) -> None:
    rotators = [Rotator(acker) for _ in range(4)]
    start(acker, 5)
    expired = []
    for _ in range(3):
        clock.advance(TICK_MS)
        expired.append([rotator.once().expired for rotator in rotators])
    assert expired == [[0, 0, 0, 0], [0, 0, 0, 0], [5, 0, 0, 0]]
    assert acker.stats().shards[0].tick == 3


# -- the thread ----------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    """One that may be killed."""
    found = start_server("redis-7.0")
    yield found
    found.stop()


def is_expired(acker: Acker) -> bool:
    return acker.stats().shards[0].pending == 0


def test_a_thread_lets_roots_expire_until_it_is_stopped(server: Server, namespace: str) -> None:
    with Acker(server.url, namespace=namespace, timeout_ms=100) as acker:
        with Rotator(acker).start() as thread:
            start(acker, 5)
            wait_until(lambda: is_expired(acker))
            assert thread._thread.is_alive()
        assert not thread._thread.is_alive()
        start(acker, 5)
        tick = acker.stats().shards[0].tick
        assert not [one for one in threading.enumerate() if one.name == "rotator"]
        assert acker.stats().shards[0].tick == tick
        assert acker.pending_count() == 5


def test_a_thread_outlives_a_server_that_goes_away_and_comes_back(
    server: Server, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Acker(server.url, namespace=namespace, timeout_ms=100) as acker, Rotator(acker).start() as thread:
        start(acker, 5)
        wait_until(lambda: is_expired(acker))
        server.kill()
        wait_until(lambda: caplog.records)
        assert thread._thread.is_alive()
        [record] = {(one.levelno, one.name, one.getMessage().partition(":")[0]) for one in caplog.records}
        assert record == (
            logging.ERROR,
            "redis_acker.store.rotator",
            "Rotation failed, roots expire late until it works again",
        )
        assert str(server.port) in caplog.records[0].getMessage()
        server.restart()
        start(acker, 5)
        wait_until(lambda: is_expired(acker))
