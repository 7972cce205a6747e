"""A driver that waits: for roots in work to finish, for memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count

import pytest

from redis_acker import RetryPolicy
from redis_acker.errors import BadInput, MemoryFull
from redis_acker.store.message_ids import MessageId
from tests.driver.conftest import NewWorld
from tests.driver.faults import Points
from tests.driver.source import DurableSpout
from tests.driver.test_kills import watched_driver
from tests.driver.world import MANY_ROUNDS, ROUND_MS, World
from tests.servers import Server

# -- max_pending -----------------------------------------------------------------------------------------------------


def test_no_more_than_max_pending_roots_are_ever_unfinished(
    new_world: NewWorld, caplog: pytest.LogCaptureFixture
) -> None:
    plans: dict[MessageId, str] = {number: "fail once" if number % 3 else "lose once" for number in range(60)}
    world = new_world(plans, shards=3)
    driver = world.new_driver(max_pending=7)
    driver.open()
    most = rounds = 0
    while not (world.disk.is_done() and driver.is_idle()):
        rounds += 1
        assert rounds < MANY_ROUNDS
        driver.step()
        pending = world.acker.pending_count()
        assert pending <= 7
        most = max(most, pending)
        world.queue, kept = world.queue[: rounds % 5], world.queue[rounds % 5 :]  # the task is slow
        world.work()
        world.queue += kept
        world.pass_time(1_000)
    driver.close()
    assert most == 7
    assert driver.counters.waited > 0
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["Spout orders waits: max_pending=7 messages are unfinished."]
    world.check()


def test_a_driver_that_never_has_to_wait_says_nothing(new_world: NewWorld, caplog: pytest.LogCaptureFixture) -> None:
    world = new_world(dict.fromkeys(range(6), "complete"))
    driver = world.new_driver(max_pending=7)
    driver.open()
    world.live(driver)
    assert driver.counters.waited == 0
    assert caplog.records == []


def test_roots_that_an_earlier_driver_left_count(new_world: NewWorld) -> None:
    world = new_world(dict.fromkeys(range(10), "complete"))
    first = world.new_driver(max_pending=6)
    first.open()
    first.step()
    first.close()
    second = world.new_driver(max_pending=4)
    second.open()
    for _ in range(3):
        second.step()
    assert world.acker.pending_count() == 6
    for one in world.queue[:3]:
        world.complete(one)
    del world.queue[:3]
    second.step()
    assert world.acker.pending_count() <= 4
    world.live(second)
    second.close()
    world.check()


@pytest.mark.parametrize("bad", [0, -1])
def test_a_max_pending_that_lets_nothing_through_is_refused(new_world: NewWorld, bad: int) -> None:
    with pytest.raises(BadInput, match=f"max_pending .* not {bad}"):
        new_world().new_driver(max_pending=bad)


# -- memory ----------------------------------------------------------------------------------------------------------


class Memory:
    """The memory of a server."""

    def __init__(self, server: Server) -> None:
        self.client = server.client()

    def fill(self) -> None:
        self.client.config_set("maxmemory", 1)

    def free(self) -> None:
        self.client.config_set("maxmemory", 0)


@pytest.fixture
def memory(private_server: Server, namespace: str) -> Iterator[Memory]:
    found = Memory(private_server)
    yield found
    found.free()
    for key in found.client.scan_iter(match=f"*{namespace}*", count=1000):
        found.client.delete(key)
    found.client.close()


def test_when_memory_is_full_the_driver_waits_and_goes_on_with_completions(
    memory: Memory, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    plans: dict[MessageId, str] = dict.fromkeys(range(10), "complete")
    world = World(memory.client, namespace, plans | {4: "fail once", 5: "fatal"})
    driver = world.new_driver(max_pending=6)
    driver.open()
    driver.step()
    memory.fill()
    world.work()
    for _ in range(5):
        driver.step()
    assert world.disk.settled == dict.fromkeys(range(4), "acked")
    assert len(world.deliveries) == 6
    assert driver.counters.waited > 0
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "Spout orders waits: The server's memory is full" in warnings[0]
    memory.free()
    world.live(driver)
    driver.close()
    world.check()


@pytest.mark.slow
def test_memory_may_be_full_from_any_point_on(memory: Memory, namespace: str) -> None:
    for at in count(1):
        world = World(memory.client, f"{namespace}-{at}", {1: "complete", 2: "fail once", 3: "fatal"})
        points = Points(lambda number, where: number == at, memory.fill)  # noqa: B023
        driver = watched_driver(world, points)
        try:
            driver.open()
        except MemoryFull:
            memory.free()
            driver.open()
        for _ in range(MANY_ROUNDS):
            if world.disk.is_done() and driver.is_idle():
                break
            driver.step()
            world.work()
            world.pass_time(ROUND_MS)
            if points.hits and driver.counters.waited > 2:
                memory.free()
        driver.close()
        memory.free()
        try:
            world.check()
        except AssertionError as error:
            raise AssertionError(f"memory was full from point {at}, {points.hits}") from error
        if not points.hits:
            break
    assert at > 100


def test_a_driver_that_is_started_while_memory_is_full_settles_what_is_finished(memory: Memory, namespace: str) -> None:
    world = World(memory.client, namespace, dict.fromkeys(range(6), "complete"))
    first = world.new_driver(max_pending=4)
    first.open()
    first.step()
    world.work()
    world.let_lease_run_out()  # it was killed
    memory.fill()
    second = world.new_driver(max_pending=4)
    second.open()
    for _ in range(3):
        second.step()
    assert world.disk.settled == dict.fromkeys(range(4), "acked")
    assert len(world.deliveries) == 4
    memory.free()
    world.live(second)
    second.close()
    world.check()


@pytest.mark.parametrize("max_pending", [1, 2, 7])
def test_replays_leave_room_for_first_attempts(new_world: NewWorld, max_pending: int) -> None:
    """As many messages as there are keep failing, and each of their pauses is over at once."""
    failing, good = range(100), range(100, 150)
    world = new_world({**dict.fromkeys(failing, "fail"), **dict.fromkeys(good, "complete")})
    world.policy = RetryPolicy(max_attempts=60_000, first_ms=0, jitter=0)
    driver = world.new_driver(spout=ReplaysFirst(world.disk), max_pending=max_pending)
    driver.open()
    for _ in range(400):
        driver.step()
        world.work()
    driver.close()
    assert set(good) <= world.disk.settled.keys()


class ReplaysFirst(DurableSpout):
    """Hands out what failed before anything new."""

    def fail(self, message_id: MessageId) -> None:
        super().fail(message_id)
        self._waiting.rotate(1)
