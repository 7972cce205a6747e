"""A paused spout hands out nothing and starts no replays; what is pending goes on."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from redis_acker.components.spout import Spout
from redis_acker.driver.pausing import LAG_EVERY_MS, LOOK_EVERY_MS
from redis_acker.errors import ServerUnavailable
from redis_acker.store.spout_states import SpoutStates
from redis_acker.views.overview import read_overview
from tests.driver.conftest import NewWorld
from tests.driver.source import DurableSpout
from tests.driver.world import ROUND_MS, SPOUT, World


def states(world: World) -> SpoutStates:
    return SpoutStates(world.acker.shards)


def number(world: World) -> int:
    return world.acker.spout_number(SPOUT)


def test_what_is_pending_goes_on_and_nothing_new_is_handed_out(new_world: NewWorld) -> None:
    world = new_world(dict.fromkeys(range(4), "complete"))
    driver = world.new_driver(max_pending=2)
    driver.open()
    while len(world.deliveries) < 2:
        driver.step()
    states(world).pause(number(world))
    world.clock.advance(LOOK_EVERY_MS)
    for _ in range(5):
        world.work()
        driver.step()
        world.clock.advance(ROUND_MS)
    assert sorted(world.disk.settled) == [0, 1]
    assert len(world.deliveries) == 2

    states(world).resume(number(world))
    world.clock.advance(LOOK_EVERY_MS)
    world.live(driver)
    assert sorted(world.disk.settled) == [0, 1, 2, 3]
    assert not world.mistakes
    driver.close()


def test_a_replay_waits_until_the_spout_is_resumed_and_is_not_given_up_for_it(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    driver = world.new_driver()
    driver.open()
    while not world.deliveries:
        driver.step()
    driver.switch.pause()
    world.work()
    for _ in range(20):  # longer than any pause, and than the driver waits for its source
        driver.step()
        world.clock.advance(ROUND_MS)
    assert len(world.deliveries) == 1
    assert not driver.is_idle()

    driver.switch.resume()
    world.live(driver)
    assert world.disk.settled == {1: "acked"}
    assert len(world.deliveries) == 2
    driver.close()


class Shy(DurableSpout):
    """Hands out nothing for a while after it was asked for a replay."""

    def fail(self, message_id: Any) -> None:
        super().fail(message_id)
        self.empty_rounds = 3

    empty_rounds = 0

    def next_batch(self, limit: int) -> Any:
        if self.empty_rounds:
            self.empty_rounds -= 1
            return []
        return super().next_batch(limit)


def test_a_source_that_was_asked_before_the_pause_has_its_whole_time_after_it(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    spout = Shy(world.disk)
    driver = world.new_driver(spout=spout, own_timeout_ms=100_000)
    driver.open()
    while spout.empty_rounds == 0:
        driver.step()
        world.work()
        world.clock.advance(ROUND_MS)
    driver.switch.pause()
    for _ in range(20):
        driver.step()
        world.clock.advance(ROUND_MS)
    driver.switch.resume()
    world.live(driver)
    assert world.disk.settled == {1: "acked"}
    driver.close()


def test_a_pause_holds_for_the_next_driver_from_its_first_round(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    states(world).pause(number(world))
    for _ in range(2):
        driver = world.new_driver()
        driver.open()
        for _ in range(10):
            driver.step()
            world.clock.advance(ROUND_MS)
        assert not world.deliveries
        driver.close()
    states(world).resume(number(world))
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    assert world.disk.settled == {1: "acked"}
    driver.close()


def test_the_store_is_asked_about_once_a_second(new_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = new_world({1: "complete"})
    driver = world.new_driver()
    driver.open()
    asked: list[int] = []

    def count(states: SpoutStates, number: int) -> bool:
        asked.append(number)
        return False

    monkeypatch.setattr(SpoutStates, "is_paused", count)
    for _ in range(100):
        driver.step()
        world.clock.advance(LOOK_EVERY_MS // 10)
    assert 9 <= len(asked) <= 11
    driver.close()


def test_a_pause_is_logged_once(new_world: NewWorld, caplog: pytest.LogCaptureFixture) -> None:
    world = new_world()
    driver = world.new_driver()
    driver.open()
    driver.switch.pause()
    for _ in range(3):
        driver.step()
        world.clock.advance(LOOK_EVERY_MS)
    driver.switch.resume()
    said = [record.getMessage() for record in caplog.records if record.name == "redis_acker.driver.pausing"]
    assert said == [
        "Spout orders is paused: no new messages and no replays until it is resumed.",
        "Spout orders is resumed.",
    ]
    assert all(record.levelno >= logging.WARNING for record in caplog.records)
    driver.close()


class WithLag(DurableSpout):
    waiting: int | None = 7

    def lag(self) -> int | None:
        if self.waiting == -2:
            raise ServerUnavailable("away")
        if self.waiting == -1:
            raise RuntimeError("no idea")
        return self.waiting


def lag(world: World) -> int | None:
    [spout] = read_overview(world.acker).spouts
    return spout.lag


def test_the_lag_is_shown_while_a_driver_tells_it(new_world: NewWorld, caplog: pytest.LogCaptureFixture) -> None:
    world = new_world()
    spout = WithLag(world.disk)
    driver = world.new_driver(spout=spout)
    assert type(spout).lag is not Spout.lag

    def after_a_while() -> int | None:
        world.clock.advance(LAG_EVERY_MS)
        driver.step()
        return lag(world)

    driver.open()
    driver.step()  # still looks for what an earlier driver left
    driver.step()
    assert lag(world) == 7
    driver.switch.pause()
    spout.waiting = 9
    assert after_a_while() == 9
    spout.waiting = None
    assert after_a_while() is None
    spout.waiting = -2  # only for a while
    assert after_a_while() is None
    spout.waiting = 0
    assert after_a_while() == 0
    world.let_lease_run_out()
    assert lag(world) is None  # nobody drives it, so what it said may be old
    spout.waiting = -1
    assert after_a_while() is None
    assert caplog.text.count("cannot tell its lag, and is not asked again") == 1
    driver.switch.resume()
    driver.close()


def test_nothing_is_left_behind_when_a_spout_is_resumed_and_its_driver_ends(new_world: NewWorld) -> None:
    world = new_world()
    driver = world.new_driver(spout=WithLag(world.disk))
    driver.open()
    for _ in range(3):
        driver.step()
    driver.switch.pause()
    assert world.client.hlen(world.acker.shards.keys[0].spout_states) == 2
    driver.switch.resume()
    driver.close()
    assert not world.client.exists(world.acker.shards.keys[0].spout_states)


def test_what_another_program_writes_there_is_not_taken_for_a_pause(new_world: NewWorld) -> None:
    world = new_world()
    key = world.acker.shards.keys[0].spout_states
    fields = {b"\xff": b"1", b"x paused": b"1", f"{number(world)} lag": b"-3", f"{number(world)} other": b"4"}
    for field, value in fields.items():
        world.client.hset(key, field, value)
    [spout] = read_overview(world.acker).spouts
    assert (spout.paused_ms, spout.lag) == (None, None)
