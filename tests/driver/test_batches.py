"""Batches whose init is not answered: sent again as they are, or under new roots once they are too old."""

from __future__ import annotations

from itertools import count

import pytest

from redis_acker import SpoutDriver
from redis_acker.errors import ServerUnavailable, TooLate
from redis_acker.store.message_ids import MessageId
from tests.driver.conftest import NewWorld
from tests.driver.faults import Points, unavailable, watched_acker
from tests.driver.test_kills import watched_driver
from tests.driver.world import TICK_MS, TIMEOUT_MS, World

PLANS: dict[MessageId, str] = dict.fromkeys(range(5), "complete")
"""In two blocks, and with several shards in two calls, of which the second is then not sent."""


def lose_the_answer(world: World, *, after: bool) -> SpoutDriver:
    """A driver whose first init is not answered: after=False, it did not even arrive."""
    where = f"{'after' if after else 'before'} init"
    points = unavailable(lambda number, here: here == where and not points.hits)
    driver = watched_driver(world, points)
    driver.open()
    with pytest.raises(ServerUnavailable):
        driver.step()
    assert world.deliveries == []
    return driver


@pytest.mark.parametrize("shards", [1, 7])
@pytest.mark.parametrize("after", [True, False], ids=["the reply is lost", "it does not arrive"])
def test_an_init_that_is_repeated_soon_keeps_its_roots(new_world: NewWorld, after: bool, shards: int) -> None:
    world = new_world(PLANS, shards=shards)
    driver = lose_the_answer(world, after=after)
    assert bool(world.acker.pending_count()) == after
    pending = {one.root for one in world.acker.pending()}
    world.clock.advance(TIMEOUT_MS // 2)
    driver.step()
    assert pending <= {one.root for one in world.deliveries}
    assert world.acker.pending_count() == 5
    world.live(driver)
    driver.close()
    assert {one.attempt for one in world.deliveries} == {1}
    world.check()


@pytest.mark.parametrize("shards", [1, 7])
@pytest.mark.parametrize("replayed_first", [True, False], ids=["new roots finish first", "old roots time out first"])
@pytest.mark.parametrize("after", [True, False], ids=["the reply is lost", "it does not arrive"])
def test_an_init_that_is_repeated_late_gets_new_roots_and_nothing_is_heard_of_the_old_ones(
    new_world: NewWorld, after: bool, replayed_first: bool, shards: int
) -> None:
    world = new_world(PLANS, shards=shards)
    driver = lose_the_answer(world, after=after)
    old = {one.root for one in world.acker.pending()}
    world.clock.advance(TIMEOUT_MS // 2 + 1)
    driver.step()
    new = {one.root for one in world.deliveries}
    assert len(new) == 5
    assert not new & old
    assert {one.root for one in world.acker.pending()} == new, "the old ones count no more"
    if replayed_first:
        world.work()
        driver.step()
        assert world.disk.is_done()
    else:
        world.pass_time(TICK_MS)
        driver.step()
    world.live(driver)
    for _ in range(4):
        world.pass_time(TICK_MS)
        driver.step()
    driver.close()
    assert len(world.deliveries) == 5
    assert driver.counters.failed == 0
    world.check()


@pytest.mark.parametrize("shards", [1, 7])
def test_a_batch_that_is_refused_because_it_came_too_late_gets_new_roots(new_world: NewWorld, shards: int) -> None:
    world = new_world(PLANS, shards=shards)

    def refuse() -> None:
        raise TooLate("The server refused an init: it came too late.")

    # With several shards, the first of two calls has made some roots pending.
    inits = count(1)
    points = Points(lambda number, here: here == "before init" and next(inits) == min(shards, 2), refuse)
    driver = watched_driver(world, points)
    driver.open()
    world.live(driver)
    driver.close()
    assert len(points.hits) == 1
    assert len(world.deliveries) == 5
    assert driver.counters.failed == 0
    world.check()


def test_old_roots_of_a_driver_that_died_before_it_gave_them_up_are_replayed_once(new_world: NewWorld) -> None:
    world = new_world(PLANS)
    lose_the_answer(world, after=True)  # and is killed there
    world.let_lease_run_out()
    driver = world.new_driver()
    driver.open()
    assert world.acker.pending_count() == 5
    world.live(driver)
    driver.close()
    assert [one.attempt for one in world.deliveries] == [1] * 5
    world.check()


def test_of_two_roots_of_one_message_the_newer_is_adopted(new_world: NewWorld) -> None:
    """As a driver leaves them that was paused, or killed before it could give the older one up."""
    world = new_world({1: "complete"})
    first = world.new_driver()
    first.open()
    first.step()
    (older,) = world.queue
    world.queue.clear()
    world.let_lease_run_out()
    root = int(world.acker.allocate("orders")[0])
    assert root > older.root
    world.acker.init([root], [77], message_ids=[1], echo_ids=True)
    second = world.new_driver()
    second.open()
    assert world.acker.ack([root], [77]).completed == 1
    second.step()
    assert world.disk.settled == {1: "acked"}
    for _ in range(4):
        world.pass_time(TICK_MS)
        second.step()
    second.close()
    world.check()


def test_small_batches_take_roots_of_blocks_that_were_allocated_together(new_world: NewWorld) -> None:
    world = new_world(dict.fromkeys(range(20), "complete"))
    passed: list[str] = []

    def note(number: int, where: str) -> bool:
        passed.append(where)
        return False

    driver = world.new_driver(watched_acker(world.new_acker(), unavailable(note)), max_pending=2)
    driver.open()
    world.live(driver)
    driver.close()
    assert passed.count("after init") == 10
    assert passed.count("after allocate") == 1
    assert len({one.root for one in world.deliveries}) == 20
    world.check()
