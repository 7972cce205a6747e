"""What every source of this package does, with a driver and a store that are real."""

from functools import partial
from typing import Any

import pytest

from redis_acker import Acker, FailedTuple, RetryPolicy
from redis_acker.retries.book import RetryBook
from redis_acker.store.message_ids import MessageId
from tests.spouts.kit import PATIENCE_S, Book, Keep, Work, ack, dead_letters, run_until_idle, running
from tests.spouts.places import Place, TopicPlace
from tests.waiting import wait_until

COUNT = 300


def raise_on(number: int, times: int, value: Any, time: int) -> None:
    if int(value) == number and time <= times:
        raise RuntimeError(f"attempt {time} at {value}")


def numbers(book: Book) -> dict[int, int]:
    return {int(value): times for value, times in book.counts().items()}


def is_noted(acker: Acker, spout: str, message_id: MessageId, attempts: int) -> bool:
    noted = RetryBook(acker, spout).load().get(message_id)
    return noted is not None and noted.attempt == attempts


def nothing_is_unfinished(place: Place) -> bool:
    return place.unfinished() == 0


def test_every_message_is_processed_once_and_acked(place: Place, acker: Acker) -> None:
    place.fill(range(COUNT))
    book = Book()

    run_until_idle(acker, place.spout(), Work(book))

    assert numbers(book) == dict.fromkeys(range(COUNT), 1)
    assert place.unfinished() == 0
    assert acker.pending_count() == 0


def test_a_second_run_processes_only_what_is_new(place: Place, acker: Acker) -> None:
    place.fill(range(10))
    run_until_idle(acker, place.spout(), Work(Book()))
    place.fill(range(10, 15))
    book = Book()

    run_until_idle(acker, place.spout(), Work(book))

    assert numbers(book) == dict.fromkeys(range(10, 15), 1)


def test_the_next_run_replays_nothing_that_was_completed_or_is_in_work(place: Place, acker: Acker) -> None:
    place.fill(range(30))
    bolt = Keep(Book())
    with running(acker, place.spout(), bolt):
        wait_until(lambda: len(bolt.book) == 30)
    wait_until(lambda: place.unfinished() == 30)
    ack(acker, bolt.tuples[:10])  # while no driver runs
    book = Book()

    with running(acker, place.spout(), Work(book)) as runner:
        driver = runner.drivers[0]
        wait_until(lambda: driver.counters.acked == 10)
        ack(acker, bolt.tuples[10:20])
        wait_until(lambda: driver.counters.acked == 20)
        acker.fail([root for tup in bolt.tuples[20:] for root in tup.anchors])
        assert runner.wait_until_idle(timeout_s=PATIENCE_S)
        counters = driver.counters

    assert numbers(book) == {int(tup[0]): 1 for tup in bolt.tuples[20:]}
    assert (counters.acked, counters.replayed) == (30, 10)
    wait_until(partial(nothing_is_unfinished, place))


def test_a_failed_message_is_replayed_until_it_is_done(place: Place, acker: Acker) -> None:
    place.fill(range(50))
    book = Book()

    runner = run_until_idle(acker, place.spout(), Work(book, partial(raise_on, 7, 2)))

    assert numbers(book) == dict.fromkeys(range(50), 1) | {7: 3}
    assert runner.drivers[0].counters.replayed == 2
    assert place.unfinished() == 0
    assert dead_letters(acker) == []


def test_a_message_that_keeps_failing_becomes_a_dead_letter_and_the_rest_goes_on(place: Place, acker: Acker) -> None:
    ids = place.fill(range(50))
    book = Book()

    run_until_idle(acker, place.spout(), Work(book, partial(raise_on, 7, 99)))

    [letter] = dead_letters(acker)
    assert ids[letter.message_id] == 7
    assert [one.attempt for one in letter.history] == [1, 2, 3]
    assert letter.history[2].error == "RuntimeError: attempt 3 at 7"
    assert numbers(book) == dict.fromkeys(range(50), 1) | {7: 3}
    assert place.unfinished() == 0

    again = Book()
    run_until_idle(acker, place.spout(), Work(again))
    assert len(again) == 0


def test_a_fatal_failure_is_not_tried_again(place: Place, acker: Acker) -> None:
    def refuse(value: Any, time: int) -> None:
        raise FailedTuple("not for us", fatal=True)

    place.fill([7])
    book = Book()

    run_until_idle(acker, place.spout(), Work(book, refuse))

    assert numbers(book) == {7: 1}
    assert [one.fatal for one in dead_letters(acker)] == [True]
    assert place.unfinished() == 0


def test_attempts_are_counted_across_restarts(place: Place, acker: Acker) -> None:
    ids = place.fill([7])
    [message_id] = ids
    book = Book()
    slow = RetryPolicy(max_attempts=3, first_ms=500, jitter=0)
    for attempts in (1, 2):
        with running(acker, place.spout(), Work(book, partial(raise_on, 7, 99)), retries=slow) as runner:
            wait_until(partial(is_noted, acker, runner.drivers[0].name, message_id, attempts))

    run_until_idle(acker, place.spout(), Work(book, partial(raise_on, 7, 99)), retries=slow)

    [letter] = dead_letters(acker)
    assert [one.attempt for one in letter.history] == [1, 2, 3]
    assert numbers(book) == {7: 3}
    assert place.unfinished() == 0


@pytest.mark.parametrize("tasks", [2, 3])
def test_tasks_share_the_messages(place: Place, acker: Acker, tasks: int) -> None:
    place.fill(range(COUNT))
    book = Book()

    runner = run_until_idle(acker, place.spout(), Work(book), parallelism=tasks, max_pending=20)

    found = numbers(book)
    if isinstance(place, TopicPlace):
        # Kafka gives partitions to those who have joined the group by then. When another joins, it takes some away, and
        # what is in work there is done twice.
        assert found.keys() == set(range(COUNT))
    else:
        assert found == dict.fromkeys(range(COUNT), 1)
        assert all(driver.counters.acked > 0 for driver in runner.drivers)
    assert place.unfinished() == 0


def test_max_pending_is_the_most_that_is_unfinished(place: Place, acker: Acker) -> None:
    place.fill(range(50))
    bolt = Keep(Book())

    with running(acker, place.spout(), bolt, max_pending=5) as runner:
        wait_until(lambda: runner.drivers[0].counters.waited > 10)
        assert len(bolt.book) == acker.pending_count() == 5
        ack(acker, bolt.tuples[:2])
        wait_until(lambda: len(bolt.book) == 7)


def test_without_tracking_every_message_is_acked_at_once(place: Place) -> None:
    place.fill(range(COUNT))
    book = Book()

    run_until_idle(None, place.spout(), Work(book, partial(raise_on, 7, 99)))

    assert numbers(book) == dict.fromkeys(range(COUNT), 1)
    assert place.unfinished() == 0


def test_a_message_without_the_wanted_fields_is_a_dead_letter(place: Place, acker: Acker) -> None:
    place.fill(range(3))
    spout: Any = place.spout()
    spout.fields = spout._names = ("number", "colour")

    run_until_idle(acker, spout, Work(Book()))

    letters = dead_letters(acker)
    assert len(letters) == 3
    assert all("no field 'colour'" in one.history[0].error for one in letters)
    assert place.unfinished() == 0
