"""Retries: counted, spaced out, bounded, and at their end a dead letter."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from redis_acker import Acker, DeadLetter, Message, Observer, RetryPolicy, SpoutDriver
from redis_acker.retries.book import RetryBook
from redis_acker.store.message_ids import MessageId
from redis_acker.store.streams import Cause
from tests.driver.conftest import NewWorld
from tests.driver.source import DurableSpout
from tests.driver.world import SPOUT, TICK_MS, World
from tests.unprintable import Unprintable


def run_until_delivered(world: World, driver: SpoutDriver, deliveries: int, *, step_ms: int = 100) -> int:
    """Lets time pass in small steps, in which the task does nothing, until so many tuples have come. Returns ms."""
    began_ms = world.clock()
    while len(world.deliveries) < deliveries:
        assert world.clock() - began_ms < 3_600_000
        world.clock.advance(step_ms)
        driver.step()
    return world.clock() - began_ms


# -- pauses --------------------------------------------------------------------------------------------------------


def test_a_failed_message_is_emitted_again_after_its_pause_and_not_before(new_world: NewWorld) -> None:
    world = new_world({1: "fail"})
    world.policy = RetryPolicy(max_attempts=4, first_ms=1_000, longest_ms=3_000, jitter=0)
    driver = world.new_driver()
    driver.open()
    driver.step()
    waited_ms = []
    for deliveries in (2, 3, 4):
        world.work()
        driver.step()
        waited_ms.append(run_until_delivered(world, driver, deliveries))
    assert waited_ms == [1_000, 2_000, 3_000]
    assert world.attempts_at(1) == [1, 2, 3, 4]


def test_the_pause_of_a_message_that_its_source_hands_out_early_is_kept(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    spout = DurableSpout(world.disk)
    driver = world.new_driver(spout=spout)
    driver.open()
    driver.step()
    world.work()
    driver.step()
    for _ in range(3):
        spout.add(1, "fail once")
        driver.step()
    assert run_until_delivered(world, driver, 2) == world.policy.first_ms
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1, 2]
    world.check()


# -- counting ------------------------------------------------------------------------------------------------------


def test_attempts_and_pauses_go_on_after_a_restart(new_world: NewWorld) -> None:
    world = new_world({1: "fail"})
    world.policy = RetryPolicy(max_attempts=4, first_ms=1_000, jitter=0)
    for deliveries in (1, 2, 3, 4):
        driver = world.new_driver()
        driver.open()
        waited_ms = run_until_delivered(world, driver, deliveries)
        world.work()
        driver.step()
        driver.close()
        assert waited_ms == max(100, 500 * 2 ** (deliveries - 1) if deliveries > 1 else 0)
    assert world.attempts_at(1) == [1, 2, 3, 4]
    assert [one.attempt for one in world.dead_letters()[1].history] == [1, 2, 3, 4]
    world.check()


def test_a_root_that_is_pending_at_a_restart_keeps_its_attempt(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    first = world.new_driver()
    first.open()
    first.step()
    world.work()
    first.step()
    run_until_delivered(world, first, 2)
    first.close()
    second = world.new_driver()
    second.open()
    world.live(second)
    second.close()
    assert world.attempts_at(1) == [1, 2]
    world.check()


def test_a_message_that_completes_leaves_no_history(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    assert RetryBook(world.acker, SPOUT).load() == {}
    spout_again = DurableSpout(world.disk)
    world.disk.settled.clear()
    world.completed.clear()
    driver.close()
    driver = world.new_driver(spout=spout_again)
    driver.open()
    driver.step()
    assert world.deliveries[-1].attempt == 1


def test_timeouts_are_attempts_like_others_and_name_who_holds_the_tuple(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    world.policy = RetryPolicy(max_attempts=2, first_ms=0, jitter=0)
    driver = world.new_driver(holders=lambda roots: dict.fromkeys(roots, Cause("parse", "it has it")))
    driver.open()
    for _ in range(12):
        driver.step()
        world.pass_time(TICK_MS)
    history = world.dead_letters()[1].history
    assert [(one.attempt, one.reason, one.component) for one in history] == [
        (1, "timeout", "parse"),
        (2, "timeout", "parse"),
    ]
    assert history[0].error == "it has it"


# -- the end -------------------------------------------------------------------------------------------------------


class Listener(Observer):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.dead: list[DeadLetter] = []
        self.failed: list[tuple[MessageId, str]] = []
        self.completed: list[MessageId] = []

    def on_dead(self, letter: DeadLetter) -> None:
        self.dead.append(letter)

    def on_fail(self, message_id: MessageId, reason: str) -> None:
        self.failed.append((message_id, reason))

    def on_complete(self, message_id: MessageId, latency_ms: int) -> None:
        self.completed.append(message_id)


def test_after_the_last_attempt_there_is_a_dead_letter_with_the_whole_history(
    new_world: NewWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world, listener = new_world({"x": "fail", "y": "complete"}), Listener()
    driver = world.new_driver(observer=listener)
    driver.open()
    with caplog.at_level(logging.ERROR, "redis_acker"):
        world.live(driver)
    driver.close()
    letter = world.dead_letters()["x"]
    assert [(one.attempt, one.reason, one.component, one.error) for one in letter.history] == [
        (attempt, "failed", "task", f"attempt {attempt}") for attempt in (1, 2, 3)
    ]
    assert [one.at_ms for one in letter.history] == sorted({one.at_ms for one in letter.history})
    assert (letter.spout, letter.fatal, letter.payload) == (SPOUT, False, ["x", "fail"])
    assert world.disk.settled == {"x": "dead", "y": "acked"}
    assert [record.getMessage() for record in caplog.records] == [
        "Message 'x' of spout orders is dead after 3 attempts: failed in task: attempt 3. Its dead letter holds its "
        "values: see `redis-acker dead list`."
    ]
    assert listener.dead == [letter]
    assert listener.failed == [("x", "failed")] * 3
    assert listener.completed == ["y"]
    counters = driver.counters
    assert (counters.emitted, counters.replayed, counters.failed, counters.dead, counters.acked) == (4, 2, 3, 1, 1)
    world.check()


def test_a_fatal_failure_is_not_tried_again(new_world: NewWorld) -> None:
    world = new_world({"x": "fatal"})
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    driver.close()
    letter = world.dead_letters()["x"]
    assert letter.fatal
    assert [(one.attempt, one.error) for one in letter.history] == [(1, "never")]
    assert world.attempts_at("x") == [1]
    world.check()


@pytest.mark.usefixtures("strict_log")
@pytest.mark.parametrize("error", [RuntimeError("broken hook"), Unprintable()], ids=lambda error: type(error).__name__)
def test_an_observer_that_fails_does_not_stop_the_driver(
    new_world: NewWorld, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Observer):
        def on_dead(self, letter: DeadLetter) -> None:
            raise error

        on_fail = on_complete = on_dead  # type: ignore[assignment]

    world = new_world({1: "complete", 2: "fail"})
    driver = world.new_driver(observer=Broken())
    driver.open()
    world.live(driver)
    driver.close()
    assert "goes on" in caplog.text
    world.check()


def test_a_message_that_dies_again_gets_a_new_letter(new_world: NewWorld) -> None:
    world = new_world({1: "fatal"})
    spout = DurableSpout(world.disk)
    driver = world.new_driver(spout=spout)
    driver.open()
    world.live(driver)
    first = world.dead_letters()[1]
    world.disk.settled.clear()
    world.deliveries.clear()
    spout.add(1, "fatal")
    world.live(driver)
    assert world.dead_letters()[1].history[0].at_ms > first.history[0].at_ms


def test_a_message_adopted_from_an_earlier_driver_has_its_payload_once_the_source_hands_it_out(
    new_world: NewWorld,
) -> None:
    class OnePerBatch(DurableSpout):
        def next_batch(self, limit: int) -> list[Message]:
            return list(super().next_batch(min(limit, 1)))

    world = new_world({1: "fatal", 2: "fatal"})
    first = world.new_driver()
    first.open()
    first.step()
    first.close()
    second = world.new_driver(spout=OnePerBatch(world.disk))
    second.open()
    second.step()
    world.work()
    world.live(second)
    second.close()
    letters = world.dead_letters()
    assert (letters[1].payload, letters[2].payload) == ([1, "fatal"], None)
    world.check()


def test_without_an_acker_nothing_is_retried(new_world: NewWorld) -> None:
    world = new_world({1: "fail"})
    no_acker: Acker | None = None

    class Sink:
        def targets(self, stream: str, values: Any) -> list[Any]:
            return ["task"]

        def deliver(self, *args: Any) -> None:
            delivered.append(args)

    delivered: list[Any] = []
    driver = SpoutDriver(DurableSpout(world.disk), no_acker, Sink(), name=SPOUT)
    driver.open()
    driver.step()
    driver.step()
    driver.close()
    assert len(delivered) == 1
    assert world.disk.settled == {1: "acked"}
    assert driver.is_idle()
