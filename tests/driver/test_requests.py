"""Replays that others than the driver ask for, of failures that were drained."""

from __future__ import annotations

from typing import Any

import pytest

from redis_acker.driver.requests import REQUESTS_EVERY_MS
from redis_acker.errors import BadInput, ServerUnavailable
from redis_acker.retries.book import RetryBook
from redis_acker.retries.failed_roots import FailedRoot
from redis_acker.retries.requests import ReplayRequests, Requested
from redis_acker.retries.withdrawals import Choice, Owner, Withdrawal
from redis_acker.store.message_ids import MessageId
from tests.driver.conftest import NewWorld
from tests.driver.source import Forgetful
from tests.driver.world import SPOUT, Router, World

HERE = Owner.here("a test")


def drain(world: World) -> list[FailedRoot]:
    """Takes all failures of the spout out of the store."""
    withdrawal = Withdrawal(world.acker, HERE, Choice(spout=SPOUT))
    roots: list[FailedRoot] = []
    for withdrawn in withdrawal.failures():
        roots += withdrawal.roots_of(withdrawn)
        withdrawal.forget(withdrawn)
    assert withdrawal.driven == {}
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


def test_a_request_for_a_message_that_is_about_to_be_forgotten_waits_until_it_is(new_world: NewWorld) -> None:
    class Unheard(Router):
        def targets(self, stream: str, values: Any) -> list[Any]:
            return []

    class OutOfReach(Forgetful):
        is_out = True
        acks: list[MessageId]

        def ack(self, message_id: MessageId) -> None:
            if self.is_out:
                raise ServerUnavailable("no answer")
            self.acks.append(message_id)

    world = new_world({1: "fail once"})
    roots = failed_without_driver(world)
    spout = OutOfReach(world.disk)
    spout.acks = []
    driver = world.new_driver(spout=spout, router=Unheard(world))
    driver.open()
    spout.add(1, "fail once")
    with pytest.raises(ServerUnavailable):
        driver.step()
    ask(world, roots)
    world.clock.advance(REQUESTS_EVERY_MS)
    spout.is_out = False
    driver.step()
    assert spout.acks == [1]
    assert RetryBook(world.acker, SPOUT).load()[1].attempt == 1, "the request is still there"
    world.clock.advance(REQUESTS_EVERY_MS)
    driver.step()
    driver.close()
    assert spout.acks == [1, 1]
    assert RetryBook(world.acker, SPOUT).load() == {}


def test_a_driver_killed_after_it_took_the_request_leaves_it_in_the_book(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    ask(world, failed_without_driver(world))
    killed = world.new_driver(spout=Forgetful(world.disk))
    killed.open()
    assert killed._requests
    killed._requests.accept()
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
