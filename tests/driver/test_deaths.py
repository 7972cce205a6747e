"""Deaths of a driver, together with all that it had emitted: no attempt of those that merely waited, and the message
that kills its process is found and buried alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import Any

import pytest

from redis_acker import Anchors, Message, RetryPolicy, SpoutDriver
from redis_acker.driver.deaths import Trials
from redis_acker.driver.life import Life
from redis_acker.retries.book import Retry, RetryBook, Suspicion
from redis_acker.store.message_ids import MessageId
from tests.driver.conftest import NewWorld
from tests.driver.faults import Killed, Points, watched_acker
from tests.driver.source import DurableSpout
from tests.driver.world import SPOUT, TICK_MS, Router, World

KILLS = "it kills its process"


def start(world: World, max_pending: int = 100) -> SpoutDriver:
    """A driver whose predecessor is dead."""
    world.let_lease_run_out()
    driver = world.new_driver(max_pending=max_pending)
    driver.open()
    return driver


def die(world: World) -> None:
    """The process is gone, with everything in its queues."""
    world.queue.clear()


def emit(world: World, driver: SpoutDriver) -> None:
    """Drives until something is in the queue."""
    for _ in range(100):
        driver.step()
        if world.queue:
            return
        world.pass_time(TICK_MS)
    raise AssertionError("nothing is emitted")


def live_until_death(world: World, killers: set[MessageId], *, max_pending: int) -> bool:
    """The life of a process: until a killer is in the hands of the task, or all is settled. False then."""
    driver = start(world, max_pending)
    for _ in range(400):
        if world.disk.is_done() and driver.is_idle():
            driver.close()
            return False
        driver.step()
        for at, one in enumerate(world.queue):
            if one.message_id in killers:
                del world.queue[at:]  # what was in the hands of the task before it is done
                world.work()
                die(world)
                return True
        world.work()
        world.pass_time(TICK_MS)
    raise AssertionError(f"only {len(world.disk.settled)} messages are settled")


def count_deaths(world: World, killers: set[MessageId], *, max_pending: int, ticks_between: int = 0) -> int:
    deaths = 0
    while live_until_death(world, killers, max_pending=max_pending):
        deaths += 1
        for _ in range(ticks_between):
            world.pass_time(TICK_MS)
        assert deaths < 200
    return deaths


def outcomes(innocents: int, killers: set[MessageId]) -> dict[MessageId, str]:
    return {one: "dead" if one in killers else "acked" for one in range(innocents)}


def test_deaths_of_a_driver_are_no_attempts_of_healthy_messages(new_world: NewWorld) -> None:
    """Killed from outside, in the middle of work, far more often than a message has attempts."""
    world = new_world(dict.fromkeys(range(200), "complete"))
    for _ in range(4 * world.policy.max_attempts):
        emit(world, start(world))
        del world.queue[len(world.queue) // 4 :]
        world.work()
        die(world)
    last = start(world)
    world.live(last)
    last.close()
    world.check()


@pytest.mark.parametrize("ticks_between", [0, 4], ids=["started again at once", "when all has timed out"])
@pytest.mark.parametrize("max_pending", [1, 2, 12, 64, 100])
def test_the_message_that_kills_its_process_is_found_and_buried_and_no_other(
    new_world: NewWorld, max_pending: int, ticks_between: int
) -> None:
    killers: set[MessageId] = {17}
    world = new_world(dict.fromkeys(range(100), "complete"))
    deaths = count_deaths(world, killers, max_pending=max_pending, ticks_between=ticks_between)
    assert deaths <= ceil(log2(max_pending)) + 1 + world.policy.max_attempts
    assert world.disk.settled == outcomes(100, killers)
    [letter] = world.dead_letters().values()
    assert letter.message_id == 17
    assert len(letter.history) == world.policy.max_attempts
    assert all(KILLS in one.error for one in letter.history)
    assert world.mistakes == []
    world.check_leftovers()


def test_several_messages_that_kill_their_process_are_all_found(new_world: NewWorld) -> None:
    killers: set[MessageId] = {3, 4, 31}
    world = new_world(dict.fromkeys(range(40), "complete"))
    deaths = count_deaths(world, killers, max_pending=20)
    assert deaths <= len(killers) * (ceil(log2(20)) + 1 + world.policy.max_attempts)
    assert world.disk.settled == outcomes(40, killers)
    assert world.dead_letters().keys() == killers
    world.check_leftovers()


def test_a_driver_that_stops_leaves_no_suspects(new_world: NewWorld) -> None:
    """What it had in flight is tried again all at once."""
    world = new_world(dict.fromkeys(range(20), "complete"))
    first = start(world)
    first.step()
    first.close()
    die(world)
    second = start(world)
    emit(world, second)
    assert len(world.queue) == 20
    world.live(second)
    second.close()
    world.check()


def test_while_suspects_are_tried_nothing_else_is_emitted(new_world: NewWorld) -> None:
    world = new_world(dict.fromkeys(range(20), "complete"))
    start(world, 10).step()
    suspects = {one.message_id for one in world.queue}
    die(world)
    driver = start(world, 10)
    sizes, batches = [], list[set[MessageId]]()
    while not world.disk.is_done():
        driver.step()
        if world.queue:
            batches.append({one.message_id for one in world.queue})
            sizes.append(len(world.queue))
        world.work()
        world.pass_time(TICK_MS)
    assert all(batch <= suspects or not batch & suspects for batch in batches)
    assert [len(batch) for batch in batches if batch <= suspects] == [5, 5]
    driver.close()
    world.check()


def test_a_suspect_that_fails_by_itself_is_a_suspect_no_more(new_world: NewWorld) -> None:
    world = new_world({1: "fail once", 2: "complete"})
    start(world).step()
    die(world)
    world.deliveries.clear()
    driver = start(world)
    emit(world, driver)
    noted = RetryBook(world.acker, SPOUT).load()
    assert [one.suspicion is None for one in noted.values()] == [False, False]
    while 2 not in world.attempts_at(1):
        driver.step()
        world.work()
        noted = RetryBook(world.acker, SPOUT).load()
        world.clock.advance(world.policy.first_ms // 2)
    assert noted[1].suspicion is None
    world.live(driver)
    driver.close()
    world.check()


def test_a_lone_message_is_no_suspect_of_the_same_death_twice(new_world: NewWorld) -> None:
    """A successor that dies when it has noted it as a suspect, before it emits anything, is no further sign against
    it."""
    world = new_world({1: "complete"})
    world.policy = RetryPolicy(max_attempts=1)
    emit(world, start(world))
    die(world)
    world.disk.plans[2] = "complete"
    world.let_lease_run_out()
    points = Points(lambda number, where: where == "after HSET", lambda: points.kill())
    driver = world.new_driver(watched_acker(world.new_acker(), points))
    driver.open()
    with pytest.raises(Killed):
        driver.step()
    assert RetryBook(world.acker, SPOUT).load()[1].suspicion
    driver = start(world)
    world.live(driver)
    driver.close()
    world.check()


# -- whose turn it is ------------------------------------------------------------------------------------------------


def lives(number: int, together: int = 0) -> list[Life]:
    suspicion = Suspicion(together, 77) if together else None
    return [Life(one, retry=Retry(suspicion=suspicion)) for one in range(number)]


def test_drivers_of_one_process_take_turns_to_try_their_suspects() -> None:
    trials = Trials()
    suspects, fresh = lives(4, together=2), lives(3)
    assert trials.admit("a", fresh, 0) == fresh
    assert trials.admit("b", suspects, 0) == [], "others are in flight"
    assert trials.admit("a", fresh, 1) == [], "suspects wait"
    assert trials.admit("a", lives(1, together=1), 0) == [], "it is the turn of b"
    assert trials.admit("b", suspects, 0) == suspects[:2]
    assert trials.admit("b", suspects[2:], 2) == []
    assert trials.admit("b", suspects[2:], 1) == suspects[2:3]
    assert trials.admit("b", suspects[3:], 0) == suspects[3:]
    assert trials.admit("b", [*fresh], 1) == []
    assert trials.admit("b", fresh, 0) == fresh, "its suspects are through"
    alone = lives(2, together=1)
    assert trials.admit("a", alone, 0) == []
    assert trials.admit("b", [], 0) == []
    assert trials.admit("a", alone, 0) == alone[:1]


def test_the_least_suspicious_are_tried_first_and_the_bound_of_each_holds() -> None:
    trials = Trials()
    bold, shy = lives(3, together=8), lives(2, together=2)
    assert trials.admit("a", [*shy, *bold], 0) == bold
    assert trials.admit("a", shy, 2) == []
    assert trials.admit("a", shy, 1) == shy[:1]
    assert trials.admit("a", [*lives(1, together=8), shy[1]], 2) == []


def test_messages_without_an_id_wait_while_suspects_are_tried(new_world: NewWorld) -> None:
    world = new_world({1: "complete", 2: "complete"})
    start(world).step()
    die(world)
    waiting, trials, came = [Message(["loose", ""])] * 3, Trials(), list[bool]()

    class WithLoose(DurableSpout):
        def next_batch(self, limit: int) -> list[Message]:
            found = list(super().next_batch(limit))
            return [*found, waiting.pop()] if found and waiting else found

    class Sorter(Router):
        def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
            if anchors:
                super().deliver(target, values, stream, anchors)
            else:
                came.append(trials.is_on)

    world.let_lease_run_out()
    driver = world.new_driver(spout=WithLoose(world.disk), router=Sorter(world), trials=trials)
    driver.open()
    world.live(driver)
    driver.step()
    assert came == [False] * (3 - len(waiting))
    assert len(came) > 1
    driver.close()
