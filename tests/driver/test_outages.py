"""A driver that cannot reach the store, or whose source cannot, for a while: it goes on where it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

import pytest

from redis_acker.errors import ServerUnavailable
from tests.driver.conftest import NewWorld
from tests.driver.faults import unavailable
from tests.driver.test_kills import PATIENT, PLANS, watched_driver
from tests.driver.world import MANY_ROUNDS, ROUND_MS, World


def live_through(world: World, is_out: Callable[[], bool]) -> list[str]:
    """Runs one driver to the end of its work. is_out says of each answer after the start whether it is missing.
    Returns where answers were missing."""
    is_open = False
    points = unavailable(lambda number, where: is_open and is_out())
    driver = watched_driver(world, points)
    is_open = driver.open()
    for _ in range(MANY_ROUNDS):
        if world.disk.is_done() and driver.is_idle():
            break
        try:
            driver.step()
        except ServerUnavailable:
            continue
        world.work()
        world.pass_time(ROUND_MS)
    is_open = False
    driver.close()
    try:
        world.check()
    except AssertionError as error:
        raise AssertionError(f"no answer {points.hits}") from error
    return points.hits


@pytest.mark.slow
def test_any_answer_may_be_missing(new_world: NewWorld) -> None:
    for at in count(1):
        answers = count(1)
        if not live_through(new_world(PLANS), lambda: next(answers) == at):  # noqa: B023
            break
    assert at > 100


@pytest.mark.parametrize("seed", range(5))
def test_answers_may_be_missing_again_and_again(new_world: NewWorld, seed: int) -> None:
    rng = random.Random(seed)
    world = new_world(PLANS, shards=rng.choice([1, 3]))
    world.policy = PATIENT
    assert live_through(world, lambda: rng.random() < 0.03)
