"""A store that loses what it was given: the driver notices by itself."""

from __future__ import annotations

from typing import Any

import pytest

from redis_acker import RetryPolicy, SpoutDriver
from redis_acker.retries.book import FailedAttempt, Retry, RetryBook
from redis_acker.store.message_ids import MessageId
from redis_acker.store.streams import Cause
from tests.driver.conftest import NewWorld
from tests.driver.world import SPOUT, TICK_MS, TIMEOUT_MS, World

OWN_TIMEOUT_MS = 3 * TIMEOUT_MS

FORGIVING = RetryPolicy(max_attempts=10, first_ms=0, jitter=0)


def lose_everything(world: World) -> None:
    world.client.delete(*world.client.scan_iter(match=f"*{world.namespace}*", count=1000))
    world.new_acker().spout_number(SPOUT)  # as the next client that starts does
    world.emitted_by.clear()


def lose_roots(world: World) -> dict[Any, Any]:
    """The store forgets what is pending. Returns what it forgot."""
    keys = [key for name in ("heads", "vals", "ids") for key in world.client.scan_iter(f"*{world.namespace}*:{name}:*")]
    held = {key: world.client.hgetall(key) for key in keys}
    world.client.delete(*keys)
    return held


def bring_back(world: World, held: dict[Any, Any]) -> None:
    for key, fields in held.items():
        world.client.hset(key, mapping=fields)


def open_driver(world: World) -> SpoutDriver:
    world.policy = FORGIVING
    driver = world.new_driver()
    driver.open()
    return driver


def test_what_the_store_has_lost_is_replayed_and_nothing_is_forgotten(new_world: NewWorld) -> None:
    plans: dict[MessageId, str] = dict.fromkeys(range(30), "complete")
    world = new_world(plans | {30: "lose once", 31: "fail once"}, shards=3)
    driver = open_driver(world)
    driver.step()
    for one in world.queue[:10]:
        world.complete(one)
    lost = {one.message_id for one in world.queue}
    world.queue.clear()
    lose_everything(world)
    world.completed.clear()  # their completions were in the streams, and are lost too
    world.live(driver)
    driver.close()
    assert all(world.attempts_at(message_id)[:2] == [1, 2] for message_id in lost)
    world.check()


def test_a_store_that_loses_everything_again_and_again_delays_and_loses_nothing(new_world: NewWorld) -> None:
    world = new_world({1: "complete", 2: "fail once", 3: "lose once", 4: "fatal"})
    driver = open_driver(world)
    for _ in range(3):
        world.live(driver, rounds=2)
        lose_everything(world)
        world.completed -= world.completed - world.disk.settled.keys()
    world.live(driver)
    assert {message_id: outcome for message_id, outcome in world.disk.settled.items() if message_id != 4} == {
        1: "acked",
        2: "acked",
        3: "acked",
    }
    assert world.disk.settled[4] == "dead"
    assert world.disk.mistakes == world.mistakes == []


def test_what_is_given_up_says_so(new_world: NewWorld, caplog: pytest.LogCaptureFixture) -> None:
    world = new_world({1: "complete"})
    world.policy = RetryPolicy(max_attempts=1)
    driver = world.new_driver(own_timeout_ms=100_000)
    driver.open()
    driver.step()
    lose_everything(world)
    world.clock.advance(99_999)
    driver.step()
    assert world.disk.settled == {}
    world.clock.advance(1)
    driver.step()
    assert world.disk.settled == {1: "dead"}
    assert "timeout: the store has lost it: no final event for 100000 ms" in caplog.text


def test_a_root_that_is_extended_for_longer_than_the_own_timeout_is_not_given_up(new_world: NewWorld) -> None:
    world = new_world({1: "complete", 2: "complete"})
    driver = open_driver(world)
    driver.step()
    for _ in range(3 * OWN_TIMEOUT_MS // TICK_MS):
        world.acker.extend([one.root for one in world.queue])
        world.pass_time(TICK_MS)
        driver.step()
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == world.attempts_at(2) == [1]
    world.check()


def test_a_driver_that_slept_for_longer_than_its_own_timeout_gives_up_nothing(new_world: NewWorld) -> None:
    """The completions of all that it had in work are waiting for it, in more entries than it reads at once."""
    world = new_world(dict.fromkeys(range(250), "complete"))
    driver = open_driver(world)
    driver.step()
    world.work()
    for _ in range(2 * OWN_TIMEOUT_MS // TICK_MS):
        world.pass_time(TICK_MS)
    world.live(driver)
    driver.close()
    assert {one.attempt for one in world.deliveries} == {1}
    world.check()


def test_a_final_event_that_another_driver_took_and_left_is_found_before_its_root_is_given_up(
    new_world: NewWorld,
) -> None:
    world = new_world({1: "complete", 2: "fatal"})
    driver = open_driver(world)
    driver.step()
    world.work()
    assert world.acker.completions(SPOUT, consumer="driver").read()
    assert world.acker.failures(SPOUT, consumer="driver").read()
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == world.attempts_at(2) == [1]
    world.check()


@pytest.mark.parametrize("event", ["completion", "failure"])
@pytest.mark.parametrize("replay_is_done", [False, True], ids=["while its replay is in work", "after its replay"])
def test_a_late_event_of_a_root_that_was_given_up_is_ignored(
    new_world: NewWorld, event: str, replay_is_done: bool
) -> None:
    """The roots were on a server that was gone for a while."""
    world = new_world({1: "complete"})
    driver = open_driver(world)
    driver.step()
    (lost,) = world.queue
    world.queue.clear()
    held = lose_roots(world)
    world.clock.advance(OWN_TIMEOUT_MS)
    driver.step()
    driver.step()
    if replay_is_done:
        world.work()
        driver.step()
        assert world.disk.settled == {1: "acked"}
    bring_back(world, held)
    if event == "completion":
        assert world.acker.ack([lost.root], [lost.edge]).completed == 1
    else:
        assert world.acker.fail([lost.root]).failed == 1
    driver.step()
    assert world.disk.settled == ({1: "acked"} if replay_is_done else {})
    world.live(driver)
    driver.close()
    assert driver.counters.acked == 1
    assert world.attempts_at(1) == [1, 2]
    world.check()


def test_a_root_whose_failure_is_noted_but_that_is_pending_again_is_not_waited_for(new_world: NewWorld) -> None:
    """As after a failover, when one server has lost the failure and another still has the note of it."""
    world = new_world({1: "complete"})
    first = open_driver(world)
    first.step()
    (lost,) = world.queue
    world.queue.clear()
    failed = FailedAttempt(1, "failed", "task", "", world.clock())
    RetryBook(world.acker, SPOUT).note({1: Retry([failed], world.clock())})
    world.let_lease_run_out()
    second = open_driver(world)
    second.step()
    second.step()
    assert world.attempts_at(1) == [1, 2]
    world.acker.fail([lost.root])
    world.live(second)
    second.close()
    assert world.attempts_at(1) == [1, 2]
    world.check()


def test_what_the_store_lost_while_a_component_has_it_names_that(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    world.policy = RetryPolicy(max_attempts=1)
    driver = world.new_driver(holders=lambda roots: dict.fromkeys(roots, Cause("parse", "it is there")))
    driver.open()
    driver.step()
    lose_everything(world)
    world.clock.advance(OWN_TIMEOUT_MS)
    driver.step()
    [attempt] = world.dead_letters()[1].history
    assert attempt.component == "parse"
    assert attempt.error == f"the store has lost it: no final event for {OWN_TIMEOUT_MS} ms; it is there"


def two_drivers(new_world: NewWorld) -> tuple[World, SpoutDriver]:
    """The second driver, after the first has emitted a message that has one attempt."""
    world = new_world({1: "complete"})
    world.policy = RetryPolicy(max_attempts=1)
    first = world.new_driver()
    first.open()
    first.step()
    first.close()
    second = world.new_driver()
    second.open()
    second.step()
    return world, second


def test_a_timeout_of_what_an_earlier_driver_emitted_is_no_attempt(new_world: NewWorld) -> None:
    world, second = two_drivers(new_world)
    for _ in range(3):
        world.pass_time(TICK_MS)
    world.queue.clear()
    world.live(second)
    second.close()
    assert world.attempts_at(1) == [1, 1]
    world.check()


def test_what_the_store_has_lost_of_an_earlier_driver_is_no_attempt(new_world: NewWorld) -> None:
    world, second = two_drivers(new_world)
    lose_roots(world)
    world.queue.clear()
    world.live(second)
    second.close()
    assert world.attempts_at(1) == [1, 1]
    assert world.disk.settled == {1: "acked"}
