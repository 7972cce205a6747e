"""A driver that is killed at every point of its work, and succeeded by another."""

from __future__ import annotations

import random
from itertools import count

import pytest

from redis_acker import RetryPolicy, SpoutDriver
from redis_acker.store.message_ids import MessageId
from tests.driver.conftest import NewWorld
from tests.driver.faults import Killed, Points, WatchedRouter, WatchedSpout, killing_at, no_faults, watched_acker
from tests.driver.source import DurableSpout
from tests.driver.world import Router, World

PLANS: dict[MessageId, str] = {
    "a": "complete",
    "b": "fail once",
    "c": "fail",
    "d": "fatal",
    "e": "lose once",
    "f": "complete",
}

PATIENT = RetryPolicy(max_attempts=15, first_ms=100, longest_ms=1_000, jitter=0)


def watched_driver(world: World, points: Points) -> SpoutDriver:
    return world.new_driver(
        watched_acker(world.new_acker(), points),
        spout=WatchedSpout(DurableSpout(world.disk), points),
        router=WatchedRouter(Router(world), points),
        max_pending=5,
    )


def live_until_killed(world: World, points: Points) -> None:
    """Runs a driver to the end of its work or of its life."""
    world.let_lease_run_out()
    try:
        driver = watched_driver(world, points)
        driver.open()
        world.live(driver)
        driver.close()
    except Killed:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("tasks_die_too", [False, True], ids=["tasks live on", "tasks die too"])
def test_a_driver_may_be_killed_at_any_point(new_world: NewWorld, tasks_die_too: bool) -> None:
    for at in count(1):
        world, points = new_world(PLANS), killing_at(at)
        live_until_killed(world, points)
        if tasks_die_too:
            world.queue.clear()
        live_until_killed(world, no_faults())
        try:
            world.check()
        except AssertionError as error:
            raise AssertionError(f"killed at point {at}, {points.hits}") from error
        if not points.hits:
            break
    assert at > 150


@pytest.mark.slow
def test_drivers_may_be_killed_again_and_again(new_world: NewWorld) -> None:
    rng = random.Random(1)
    for _ in range(15):
        world = new_world(PLANS, shards=rng.choice([1, 3]))
        world.policy = PATIENT
        points = [killing_at(rng.randint(1, 80)) for _ in range(6)]
        for one in points:
            live_until_killed(world, one)
            if rng.random() < 0.5:
                world.queue.clear()
        live_until_killed(world, no_faults())
        try:
            world.check()
        except AssertionError as error:
            raise AssertionError(f"killed at {[one.hits for one in points]}") from error
