"""A driver says that it is idle when nothing is left to do, and at no point before."""

from __future__ import annotations

import pytest

from redis_acker import Anchors, DeadLetter, Message, Observer, SpoutDriver
from redis_acker.driver.intake import BUSY_FACTOR
from redis_acker.retries.book import RetryBook
from redis_acker.store.message_ids import MessageId
from tests.driver.conftest import NewWorld
from tests.driver.faults import Points, WatchedRouter, WatchedSpout, watched_acker
from tests.driver.source import Deaf, DurableSpout
from tests.driver.test_kills import PLANS
from tests.driver.test_own_timeout import OWN_TIMEOUT_MS
from tests.driver.world import SPOUT, Router, World


def test_a_driver_is_not_idle_while_a_message_is_unfinished(new_world: NewWorld) -> None:
    world = new_world(PLANS)
    spout = DurableSpout(world.disk)
    drivers: list[SpoutDriver] = []
    too_early: list[str] = []

    def look(number: int, where: str) -> bool:
        if drivers and spout.is_open and drivers[0].is_idle() and spout.unfinished():
            too_early.append(f"{where}: {spout.unfinished()}")
        return False

    points = Points(look, lambda: None)
    drivers.append(
        world.new_driver(
            watched_acker(world.new_acker(), points),
            spout=WatchedSpout(spout, points),
            router=WatchedRouter(Router(world), points),
            max_pending=2,
        )
    )
    drivers[0].open()
    world.live(drivers[0])
    assert too_early == []
    assert drivers[0].is_idle()
    drivers[0].close()
    world.check()


@pytest.mark.parametrize("plan", ["complete", "fatal"])
def test_a_driver_is_not_idle_before_its_observer_knows_of_the_last_message(new_world: NewWorld, plan: str) -> None:
    drivers: list[SpoutDriver] = []
    idle_when_told: list[bool] = []

    class Asks(Observer):
        def on_complete(self, message_id: MessageId, latency_ms: int) -> None:
            idle_when_told.append(drivers[0].is_idle())

        def on_dead(self, letter: DeadLetter) -> None:
            idle_when_told.append(drivers[0].is_idle())

    world = new_world({1: plan})
    drivers.append(world.new_driver(observer=Asks()))
    drivers[0].open()
    drivers[0].step()
    drivers[0].step()  # the source has no more
    world.work()
    drivers[0].step()
    assert idle_when_told == [False]
    assert drivers[0].is_idle()
    drivers[0].close()
    world.check()


def failed_and_asked_for(world: World, spout: DurableSpout) -> SpoutDriver:
    """A driver whose source has been asked for message 1 again."""
    driver = world.new_driver(spout=spout)
    driver.open()
    driver.step()
    world.work()
    driver.step()
    world.clock.advance(world.policy.longest_ms)
    driver.step()
    driver.step()  # the source has nothing
    return driver


def test_a_driver_is_not_idle_while_the_source_has_yet_to_bring_a_message_back(new_world: NewWorld) -> None:
    class Later(DurableSpout):
        def fail(self, message_id: MessageId) -> None:
            pass

    world = new_world({1: "fail once"})
    spout = Later(world.disk)
    driver = failed_and_asked_for(world, spout)
    assert not driver.is_idle()
    spout.add(1, "fail once")
    world.live(driver)
    assert driver.is_idle()
    assert (driver.counters.acked, driver.counters.dead) == (1, 0)
    driver.close()
    world.check()


def fail_in_an_earlier_driver(world: World) -> None:
    first = world.new_driver()
    first.open()
    first.step()
    world.work()
    first.step()
    first.close()


def test_a_message_that_the_source_never_brings_back_is_dead_and_leaves_the_retry_book(new_world: NewWorld) -> None:
    world = new_world({1: "fail", 2: "complete"})
    fail_in_an_earlier_driver(world)
    driver = failed_and_asked_for(world, Deaf(world.disk))
    assert not driver.is_idle()
    assert RetryBook(world.acker, SPOUT).load().keys() == {1}
    world.clock.advance(OWN_TIMEOUT_MS)
    driver.step()
    driver.step()
    assert driver.is_idle()
    assert RetryBook(world.acker, SPOUT).load() == {}
    last = world.dead_letters()[1].history[-1]
    assert last.error == f"the source was asked to hand it out again and has not done so for {OWN_TIMEOUT_MS} ms"
    driver.close()


def test_a_source_that_always_has_others_does_not_keep_a_message_in_the_retry_book_for_ever(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = World.deliver

    def deliver_tracked(world: World, message_id: MessageId, anchors: Anchors) -> None:
        if anchors:
            deliver(world, message_id, anchors)

    class Endless(Deaf):
        def next_batch(self, limit: int) -> list[Message]:
            return list(super().next_batch(limit)) or [Message([0])]  # without an id, so not tracked

    monkeypatch.setattr(World, "deliver", deliver_tracked)
    world = new_world({1: "fail"})
    fail_in_an_earlier_driver(world)
    driver = failed_and_asked_for(world, Endless(world.disk))
    world.clock.advance(BUSY_FACTOR * OWN_TIMEOUT_MS - 1)
    driver.step()
    assert RetryBook(world.acker, SPOUT).load().keys() == {1}
    world.clock.advance(1)
    driver.step()
    driver.step()
    assert RetryBook(world.acker, SPOUT).load() == {}
    error = f"the source was asked to hand it out again and has not done so for {BUSY_FACTOR * OWN_TIMEOUT_MS} ms"
    assert world.dead_letters()[1].history[-1].error == error
    driver.close()
