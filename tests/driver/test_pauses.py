"""A driver that is paused for longer than its lease, at every point of its work, while another takes over.

It may still do what it was about to do when it was paused: no look at the lease can help against that. What comes of it
is allowed here, and nothing else: one tuple too many, one needless call of its source, one note that is out of date.
"""

from __future__ import annotations

import contextlib
from itertools import count

import pytest

from redis_acker.clock import SystemClock
from redis_acker.errors import SpoutTaken
from redis_acker.store.message_ids import MessageId
from tests.driver.conftest import NewWorld
from tests.driver.faults import Points
from tests.driver.test_kills import watched_driver
from tests.driver.world import MANY_ROUNDS, ROUND_MS, SPOUT, World

PLANS: dict[MessageId, str] = {"a": "complete", "b": "fail once", "c": "fatal", "d": "complete"}

FAREWELL = {"lease", "close", "unlease"}
"""What a driver does that finds its lease taken."""

ROUNDS_OF_A_LOST_ROOT = 5
"""Rounds after which a root that nobody works on has timed out."""

HARMLESS = {"GET", "HSCAN", "HGETALL", "HMGET", "XRANGE", "page", "allocate"}

SAME_CALL = ({"XREADGROUP", "XAUTOCLAIM", "join"}, {"HMGET", "bury"}, {"release"})
"""Commands that may follow each other without a look at the lease."""


class PausedDriver:
    """Drives until it is paused. Then another takes over, does some rounds, and this one wakes up."""

    def __init__(self, world: World, at: int, rounds: int) -> None:
        self._world, self._at, self._rounds = world, at, rounds
        self.points = Points(self._is_hit, self._pause)
        self.done_after: list[str] = []
        self.other = world.new_driver(max_pending=5)

    def live(self) -> None:
        driver = watched_driver(self._world, self.points)
        driver.open()
        try:
            self._world.live(driver)
        finally:
            driver.close()

    def _is_hit(self, number: int, where: str) -> bool:
        when, _, what = where.partition(" ")
        if number > self._at and when == "before":
            self.done_after.append(what)
        return number == self._at

    def _pause(self) -> None:
        pass_time_of_leases()
        self._world.let_lease_run_out()
        self.other.open()
        self._world.live(self.other, rounds=self._rounds)


def pass_time_of_leases() -> None:
    global now_s
    now_s += 3600


now_s = 0.0


@pytest.fixture(autouse=True)
def _clock_of_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "uptime_s", lambda self: now_s)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, MANY_ROUNDS], ids=["the other is at work", "the other has done everything"])
def test_a_driver_may_be_paused_at_any_point(new_world: NewWorld, rounds: int) -> None:
    for at in count(1):
        world = new_world(PLANS)
        paused = PausedDriver(world, at, rounds)
        with contextlib.suppress(SpoutTaken):
            paused.live()
        if not paused.points.hits:
            break
        world.live(paused.other)
        for _ in range(ROUNDS_OF_A_LOST_ROOT):
            paused.other.step()
            world.pass_time(ROUND_MS)
        paused.other.close()
        try:
            check(world, paused)
        except AssertionError as error:
            raise AssertionError(f"paused at point {at}, {paused.points.hits}, then {paused.done_after}") from error
    assert at > 100


def check(world: World, paused: PausedDriver) -> None:
    when, _, what = paused.points.hits[0].partition(" ")
    same_call = next((commands for commands in SAME_CALL if what in commands), set())
    assert set(paused.done_after) <= FAREWELL | HARMLESS | same_call
    if when == "before" and what == "deliver":
        assert len({one.partition(" comes")[0].partition(" has")[0] for one in world.mistakes}) <= 1
        world.mistakes.clear()
    if when == "before" and what == "fail":
        assert len(world.disk.mistakes) <= 1
        world.disk.mistakes.clear()
    if when == "before" and what == "HSET":
        world.client.delete(world.acker.shards.keys[0].retries(world.acker.spout_number(SPOUT)))
    world.check()
