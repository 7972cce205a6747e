"""Replays that others than the driver ask for: of failures that were drained, and of dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from redis_acker import RetryPolicy
from redis_acker.draining import Choice, Drain
from redis_acker.driver import REQUESTS_EVERY_MS
from redis_acker.errors import BadInput
from redis_acker.failures import FailedRoot
from redis_acker.message_ids import MessageId
from redis_acker.owners import Owner
from redis_acker.replay_requests import ReplayRequests, Requested
from redis_acker.retries import DeadLetters, RetryBook
from tests.driver.conftest import NewWorld
from tests.driver.source import DurableSpout
from tests.driver.world import SPOUT, World

HERE = Owner.here("a test")


def drain(world: World) -> list[FailedRoot]:
    """Takes all failures of the spout out of the store."""
    one = Drain(world.acker, HERE, Choice(spout=SPOUT))
    roots: list[FailedRoot] = []
    for batch in one.batches():
        roots += [root for taken in batch for root in taken.roots()]
        one.forget(batch)
    assert one.driven == {}
    return roots


def failed_without_driver(world: World) -> list[FailedRoot]:
    """Emits everything once, and drains what fails while no driver runs."""
    driver = world.new_driver()
    driver.open()
    driver.step()
    driver.close()
    world.work()
    return drain(world)


def ask(world: World, roots: list[FailedRoot]) -> Requested:
    return ReplayRequests(world.acker).request(roots)


class Forgetful(DurableSpout):
    """A source that does not hand out by itself what it had handed out before a restart, as one with a cursor."""

    def open(self, context: Any) -> None:
        super().open(context)
        self._waiting.clear()
        self._handed_out.update(self.disk.plans)


def test_a_driver_that_starts_later_finds_the_request_and_counts_the_attempts_on(new_world: NewWorld) -> None:
    world = new_world({1: "fail once", 2: "complete"})
    roots = failed_without_driver(world)
    assert [(root.message_id, root.attempt) for root in roots] == [(1, 1)]
    assert ask(world, roots) == Requested(noted=1, again=0)
    assert {key: retry.attempt for key, retry in RetryBook(world.acker, SPOUT).load().items()} == {1: 1}
    driver = world.new_driver(spout=Forgetful(world.disk))
    driver.open()
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1, 2]
    assert RetryBook(world.acker, SPOUT).load() == {}


def test_a_source_that_hands_the_message_out_by_itself_does_not_double_it(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    ask(world, failed_without_driver(world))
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1, 2]


def test_a_driver_that_runs_sees_the_request_within_about_a_second(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    roots = failed_without_driver(world)
    driver = world.new_driver(spout=Forgetful(world.disk))
    driver.open()
    driver.step()
    ask(world, roots)
    driver.step()
    assert world.attempts_at(1) == [1]
    world.clock.advance(REQUESTS_EVERY_MS)
    driver.step()
    assert world.attempts_at(1) == [1, 2]
    world.live(driver)
    driver.close()


def test_the_same_roots_asked_for_again_change_nothing_even_after_the_message_is_complete(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    roots = failed_without_driver(world)
    assert ask(world, roots) == Requested(noted=1, again=0)
    assert ask(world, roots) == Requested(noted=0, again=1)
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    assert ask(world, roots) == Requested(noted=0, again=1)
    world.live(driver, rounds=5)
    driver.close()
    assert world.attempts_at(1) == [1, 2]
    assert world.mistakes == []


def test_attempts_of_one_message_asked_for_in_any_order_leave_the_highest(new_world: NewWorld) -> None:
    world = new_world({1: "fail"})
    first = failed_without_driver(world)
    ask(world, first)
    driver = world.new_driver()
    driver.open()
    driver.step()
    driver.close()
    world.work()
    second = drain(world)
    assert [one.attempt for one in second] == [2]
    later = FailedRoot(**{**vars(second[0]), "root": second[0].root + 1, "attempt": 3})
    assert ask(world, [later, *second]) == Requested(noted=2, again=0)
    book = RetryBook(world.acker, SPOUT).load()
    assert [one.attempt for one in book[1].history] == [1, 3]


def test_a_message_that_is_in_work_is_not_emitted_twice_but_its_attempts_are_counted_on(new_world: NewWorld) -> None:
    world = new_world({1: "fail"})
    roots = failed_without_driver(world)
    driver = world.new_driver()
    driver.open()
    driver.step()  # the source hands it out by itself, as the first attempt once more
    ask(world, roots)
    world.clock.advance(REQUESTS_EVERY_MS)
    driver.step()
    assert world.attempts_at(1) == [1, 1]
    world.mistakes.clear()
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1, 1, 3]
    assert [one.attempt for one in world.dead_letters()[1].history] == [1, 2, 3]


def test_a_driver_killed_after_it_took_the_request_leaves_it_in_the_book(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    ask(world, failed_without_driver(world))
    killed = world.new_driver(spout=Forgetful(world.disk))
    killed.open()
    killed._adopting = False
    killed._take_requests()
    world.let_lease_run_out()
    driver = world.new_driver(spout=Forgetful(world.disk))
    driver.open()
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1, 2]


def test_a_root_without_message_id_cannot_be_asked_for(new_world: NewWorld) -> None:
    world = new_world({1: "fail"})
    [root] = failed_without_driver(world)
    with pytest.raises(BadInput, match="has no message id"):
        ask(world, [FailedRoot(**{**vars(root), "message_id": None})])
    with pytest.raises(BadInput, match="no spout 'oders'"):
        ask(world, [FailedRoot(**{**vars(root), "spout": "oders"})])
    with pytest.raises(BadInput, match="failed more than 30 days ago"):
        ask(world, [FailedRoot(**{**vars(root), "at_ms": 1})])


# -- dead letters --------------------------------------------------------------------------------------------------


def dead_world(new_world: NewWorld, plans: dict[MessageId, str]) -> World:
    """A world in which everything has died, and whose task has learnt better since."""
    world = new_world(plans)
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    driver.close()
    return world


def learn(world: World, plan: str = "complete") -> None:
    world.disk.plans = dict.fromkeys(world.disk.plans, plan)
    world.disk.mistakes.clear()


class Settled(DurableSpout):
    """A source that does not mind to be told again what became of a message."""

    def ack(self, message_id: MessageId) -> None:
        assert self.disk.settled[message_id] == "dead"

    def fail(self, message_id: MessageId) -> None:
        raise AssertionError(f"{message_id!r} is settled, and its values are known")

    dead = ack


def test_a_dead_message_is_emitted_from_its_letter_with_its_history_kept(new_world: NewWorld) -> None:
    world = dead_world(new_world, {1: "fail", 2: "fail"})
    letters = DeadLetters(world.acker)
    for letter in list(letters):
        assert letters.replay(letter)
        assert not letters.replay(letter)
    assert len(letters) == 0
    driver = world.new_driver(spout=Settled(world.disk))
    driver.open()
    for _ in range(20):
        driver.step()
        world.clock.advance(100)
    assert world.attempts_at(1) == world.attempts_at(2) == [1, 2, 3, 4]
    world.work()
    driver.step()
    driver.close()
    again = world.dead_letters()
    assert {one: [had.attempt for had in letter.history] for one, letter in again.items()} == {
        1: [1, 2, 3, 4],
        2: [1, 2, 3, 4],
    }
    assert again[1].payload == [1, "fail"]


@pytest.mark.parametrize("max_attempts", [4, 6])
def test_a_dead_message_that_is_tried_again_more_than_once_never_needs_the_source(
    new_world: NewWorld, max_attempts: int
) -> None:
    world = dead_world(new_world, {1: "fail"})
    [letter] = list(DeadLetters(world.acker))
    DeadLetters(world.acker).replay(letter)
    world.policy = RetryPolicy(max_attempts=max_attempts, first_ms=0)
    for _ in range(max_attempts - 3):  # each attempt by another driver
        driver = world.new_driver(spout=Settled(world.disk))
        driver.open()
        for _ in range(5):
            driver.step()
        driver.close()
        world.work()
    driver = world.new_driver(spout=Settled(world.disk))
    driver.open()
    driver.step()
    driver.close()
    assert world.attempts_at(1) == list(range(1, max_attempts + 1))
    assert world.dead_letters()[1].payload == [1, "fail"]


def test_many_dead_messages_come_back_no_more_than_max_pending_at_once(new_world: NewWorld) -> None:
    world = dead_world(new_world, dict.fromkeys(range(20), "fatal"))
    letters = DeadLetters(world.acker)
    for letter in list(letters):
        letters.replay(letter)
    before = len(world.deliveries)
    driver = world.new_driver(spout=Settled(world.disk), max_pending=6)
    driver.open()
    for _ in range(3):
        driver.step()
    assert len(world.deliveries) - before == 6
    learn(world)
    for _ in range(10):
        world.work()
        driver.step()
    driver.close()
    assert len(world.deliveries) - before == 20
    assert driver.counters.completed == 20


def test_a_message_that_dies_as_its_letter_is_replayed_is_not_lost(new_world: NewWorld) -> None:
    """The driver forgets what it knew of a dead message after the letter is there for others to see."""
    world = new_world({1: "fatal"})
    driver = world.new_driver()

    class Impatient(DurableSpout):
        def dead(self, message_id: MessageId) -> None:
            super().dead(message_id)
            letters = DeadLetters(world.acker)
            for letter in list(letters):
                assert letters.replay(letter)

    driver = world.new_driver(spout=Impatient(world.disk))
    driver.open()
    driver.step()
    world.work()
    driver.step()
    learn(world)
    world.clock.advance(REQUESTS_EVERY_MS)
    driver.step()
    world.work()
    driver.step()
    driver.close()
    assert world.attempts_at(1) == [1, 2]
    assert driver.counters.completed == 1
    assert RetryBook(world.acker, SPOUT).load() == {}


def test_a_message_that_an_earlier_driver_emitted_dies_and_is_emitted_again_by_the_same_driver(
    new_world: NewWorld,
) -> None:
    """The driver knows it as finished, should the source hand it out: that must not stop the replay."""
    world = new_world({1: "fail"})
    first = world.new_driver()
    first.open()
    first.step()
    world.let_lease_run_out()
    world.policy = RetryPolicy(max_attempts=1)
    driver = world.new_driver(spout=Forgetful(world.disk))
    driver.open()
    driver.step()
    world.work()
    driver.step()
    [letter] = list(DeadLetters(world.acker))
    assert letter.payload is None, "it was not this driver that emitted it"
    world.disk.settled.clear()
    DeadLetters(world.acker).replay(letter, from_source=True)
    world.clock.advance(REQUESTS_EVERY_MS)
    for _ in range(3):
        driver.step()
    driver.close()
    assert world.attempts_at(1) == [1, 2]


def test_a_request_that_changes_while_the_driver_takes_it_is_seen_the_next_time(new_world: NewWorld) -> None:
    world = new_world({1: "fail"})
    [root] = failed_without_driver(world)
    ask(world, [root])
    book = RetryBook(world.acker, SPOUT)
    [request] = list(book.requests())
    ask(world, [FailedRoot(**{**vars(root), "root": root.root + 1, "attempt": 2})])
    book.accept(request, is_news=True)
    assert [one.retry.attempt for one in book.requests()] == [2]
    assert (book.load(requests=False)[1].attempt, book.load()[1].attempt) == (1, 2)


def test_a_letter_without_values_is_replayed_only_from_the_source(new_world: NewWorld) -> None:
    world = dead_world(new_world, {1: "fatal"})
    [letter] = list(DeadLetters(world.acker))
    empty = type(letter)(**{**vars(letter), "payload": None})
    RetryBook(world.acker, SPOUT)
    letters = DeadLetters(world.acker)
    with pytest.raises(BadInput, match="no values that could be emitted"):
        letters.replay(empty)
    assert not letters.replay(empty, from_source=True), "it is not the letter that is there"
    assert letters.replay(letter, from_source=True)
    driver = world.new_driver(spout=Forgetful(world.disk))
    learn(world)
    world.disk.settled.clear()
    driver.open()
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1, 2]
