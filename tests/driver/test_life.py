"""The lives of a message: one for each row of the table of transitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from redis_acker import Message, Spout, SpoutDriver
from redis_acker.driver.life import TRANSITIONS, Life, Messages, State
from redis_acker.driver.requests import REQUESTS_EVERY_MS
from redis_acker.errors import ServerUnavailable
from redis_acker.retries.book import DeadLetter, FailedAttempt, Retry, RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.retries.failed_roots import FailedRoot
from redis_acker.retries.requests import ReplayRequests
from tests.driver.conftest import NewWorld
from tests.driver.faults import unavailable, watched_acker
from tests.driver.source import Deaf, DurableSpout, Forgetful
from tests.driver.test_own_timeout import OWN_TIMEOUT_MS
from tests.driver.test_redelivery import Batches
from tests.driver.world import SPOUT, TICK_MS, Router, World


def at_work(world: World, **options: Any) -> SpoutDriver:
    """A driver that has emitted what its source had."""
    driver = world.new_driver(**options)
    driver.open()
    driver.step()
    return driver


def silent(world: World) -> DurableSpout:
    """A source that hands out nothing unless it is asked to."""
    return Forgetful(world.disk)


def leave_root(world: World, *, attempt: int = 1) -> int:
    """A root of message 1, as an earlier driver has left it."""
    root = int(world.acker.allocate(SPOUT)[0])
    world.acker.init([root], [77], message_ids=[1], attempts=[attempt], echo_ids=True)
    return root


def leave_completion(world: World, *, attempt: int = 1) -> None:
    world.acker.ack([leave_root(world, attempt=attempt)], [77])


def leave_failure(world: World, *, attempt: int = 1, fatal: bool = False) -> None:
    world.acker.fail([leave_root(world, attempt=attempt)], fatal=fatal)


def leave_note(world: World) -> None:
    """The first attempt failed, as an earlier driver has noted it."""
    failed = FailedAttempt(1, "failed", "task", "", world.clock())
    RetryBook(world.acker, SPOUT).note({1: Retry([failed], world.clock())})


# -- the lives of message 1 ------------------------------------------------------------------------------------------


def completes(world: World) -> None:
    driver = at_work(world)
    world.work()
    driver.step()


def fails_once(world: World) -> None:
    world.disk.plans[1] = "fail once"
    world.live(at_work(world))


def fails_for_good(world: World) -> None:
    world.disk.plans[1] = "fatal"
    world.live(at_work(world))


def is_not_handed_out_again(world: World) -> None:
    leave_note(world)
    driver = at_work(world, spout=Deaf(world.disk))
    driver.step()
    world.clock.advance(OWN_TIMEOUT_MS)
    driver.step()
    driver.step()


def is_handed_out_while_its_pause_runs(world: World) -> None:
    world.disk.plans[1] = "fail once"
    spout = DurableSpout(world.disk)
    driver = at_work(world, spout=spout)
    world.work()
    driver.step()
    spout.add(1, "fail once")
    world.live(driver)


def is_extended_for_long(world: World) -> None:
    driver = at_work(world)
    for _ in range(OWN_TIMEOUT_MS // TICK_MS):
        world.acker.extend([one.root for one in world.queue])
        world.pass_time(TICK_MS)
    driver.step()
    world.live(driver)


def is_emitted_while_tracking_is_off(world: World) -> None:
    class Sink(Router):
        def deliver(self, *args: Any) -> None:
            pass

    driver = SpoutDriver(DurableSpout(world.disk), None, Sink(world), name=SPOUT)
    driver.open()
    driver.step()


def goes_to_nobody(world: World) -> None:
    class Empty(Router):
        def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
            return []

    at_work(world, router=Empty(world))


def cannot_be_read(world: World) -> None:
    spout: Spout = Batches([Message(["{"], id=1, error="no JSON")])
    at_work(world, spout=spout).step()


def was_dead_and_is_replayed(world: World) -> None:
    failed = FailedAttempt(1, "failed", "task", "", world.clock())
    letter = DeadLetter(1, SPOUT, [failed], fatal=True, payload=[1, "complete"])
    RetryBook(world.acker, SPOUT).bury(letter)
    assert DeadLetters(world.acker).replay(letter)
    driver = at_work(world, spout=silent(world))
    driver.step()
    world.work()
    driver.step()


def was_left_in_work(world: World) -> None:
    root = leave_root(world)
    driver = at_work(world)
    world.acker.ack([root], [77])
    driver.step()


def was_left_complete_and_is_handed_out(world: World) -> None:
    leave_completion(world)
    at_work(world).step()


def was_left_complete_and_a_replay_is_asked_for(world: World) -> None:
    leave_completion(world)
    driver = at_work(world, spout=silent(world))
    world.disk.settled.clear()
    failed = FailedRoot(SPOUT, 1, 77, 1, "failed", "task", "", False, 0, world.clock(), 0, "0-1")
    ReplayRequests(world.acker).request([failed])
    world.clock.advance(REQUESTS_EVERY_MS)
    driver.step()


def was_left_failed(world: World) -> None:
    leave_failure(world)
    at_work(world, spout=silent(world))


def was_left_failed_for_good(world: World) -> None:
    leave_failure(world, fatal=True)
    at_work(world, spout=silent(world))


def was_noted_and_its_next_attempt_left_complete(world: World) -> None:
    leave_note(world)
    leave_completion(world, attempt=2)
    at_work(world, spout=silent(world))


def was_noted_and_its_next_attempt_left_failed(world: World) -> None:
    leave_note(world)
    leave_failure(world, attempt=2)
    at_work(world, spout=silent(world))


def was_noted_and_its_next_attempt_left_failed_for_good(world: World) -> None:
    leave_note(world)
    leave_failure(world, attempt=2, fatal=True)
    at_work(world, spout=silent(world))


def was_left_failed_twice(world: World) -> None:
    leave_failure(world)
    leave_failure(world, attempt=2)
    at_work(world, spout=silent(world))


def was_left_failed_twice_and_for_good(world: World) -> None:
    leave_failure(world)
    leave_failure(world, attempt=2, fatal=True)
    at_work(world, spout=silent(world))


def was_left_failed_and_completes_before_that_is_noted(world: World) -> None:
    leave_failure(world)
    points = unavailable(lambda number, where: where == "before HSET" and not points.hits)
    driver = world.new_driver(watched_acker(world.new_acker(), points), spout=silent(world))
    driver.open()
    with pytest.raises(ServerUnavailable):
        driver.step()
    leave_completion(world)
    driver.step()


EMITTED = [State.READY, State.EMITTING, State.PENDING]

LIVES: dict[Callable[[World], None], list[State | None]] = {
    completes: [*EMITTED, State.TOLD, None],
    fails_once: [*EMITTED, State.FAILED, State.WAITING, State.ASKED, *EMITTED, State.TOLD, None],
    fails_for_good: [*EMITTED, State.DYING, State.TOLD, None],
    is_not_handed_out_again: [State.WAITING, State.ASKED, State.DYING, State.TOLD, State.FINISHED],
    is_handed_out_while_its_pause_runs: [*EMITTED, State.FAILED, State.WAITING, *EMITTED, State.TOLD, None],
    is_extended_for_long: [*EMITTED, State.PENDING, State.TOLD, None],
    is_emitted_while_tracking_is_off: [State.UNTRACKED, State.TOLD, None],
    goes_to_nobody: [State.READY, State.UNTRACKED, State.TOLD, None],
    cannot_be_read: [State.READY, State.DYING, State.TOLD, None],
    was_dead_and_is_replayed: [State.WAITING, State.STORED, *EMITTED, State.TOLD, None],
    was_left_in_work: [State.PENDING, State.TOLD, None],
    was_left_complete_and_is_handed_out: [State.TOLD, State.FINISHED, State.TOLD, None],
    was_left_complete_and_a_replay_is_asked_for: [State.TOLD, State.FINISHED, State.WAITING, State.ASKED, *EMITTED],
    was_left_failed: [State.FAILED, State.WAITING],
    was_left_failed_for_good: [State.DYING, State.TOLD, State.FINISHED],
    was_noted_and_its_next_attempt_left_complete: [State.WAITING, State.TOLD, State.FINISHED],
    was_noted_and_its_next_attempt_left_failed: [State.WAITING, State.FAILED, State.WAITING],
    was_noted_and_its_next_attempt_left_failed_for_good: [State.WAITING, State.DYING, State.TOLD, State.FINISHED],
    was_left_failed_twice: [State.FAILED, State.FAILED, State.WAITING],
    was_left_failed_twice_and_for_good: [State.FAILED, State.DYING, State.TOLD, State.FINISHED],
    was_left_failed_and_completes_before_that_is_noted: [State.FAILED, State.TOLD, State.FINISHED],
}


@pytest.mark.parametrize("live", LIVES, ids=lambda live: live.__name__)
def test_message_1(new_world: NewWorld, live: Callable[[World], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Goes the way that its life has in the table."""
    states: list[State | None] = []
    move, move_all = Messages.move, Messages.move_all

    def move_and_note(messages: Messages, life: Life, to: State | None) -> None:
        move(messages, life, to)
        states.append(to)

    def move_all_and_note(messages: Messages, came_from: State, to: State | None) -> None:
        states.extend(to for _ in messages.all(came_from))
        move_all(messages, came_from, to)

    monkeypatch.setattr(Messages, "move", move_and_note)
    monkeypatch.setattr(Messages, "move_all", move_all_and_note)
    live(new_world({1: "complete"}))
    assert states == LIVES[live]


def test_these_lives_take_every_transition_of_the_table() -> None:
    taken = {step for states in LIVES.values() for step in pairwise([None, *states])}
    assert taken == {(state, to) for state, others in TRANSITIONS.items() for to in others}
