"""What bolts raise: it fails the tuple at hand, and is logged."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from redis_acker import (
    FailedTuple,
    OutputCollector,
    RetryPolicy,
    Tuple,
)
from tests.components.store import Store
from tests.topology.parts import (
    SPOUT_NAME,
    Does,
    Note,
    Raises,
    Relay,
    run,
    topology,
)
from tests.unprintable import Unprintable


def test_only_the_tuple_fails_whose_bolt_raised(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of a batch; with the type and text of the error and the component."""
    note = Note()
    runner = run(topology(range(20), Relay(), Raises(ValueError("no sevens"), [7]), note), store)
    assert sorted(note.values) == [one for one in range(20) if one != 7]
    [letter] = store.dead_letters(SPOUT_NAME)
    assert (letter.message_id, letter.fatal, letter.payload) == (7, False, [7])
    [attempt] = letter.history
    assert (attempt.component, attempt.error, attempt.reason) == ("bolt1", "ValueError: no sevens", "failed")
    assert runner.counters()["bolt1"].failed == 1
    [record] = [one for one in caplog.records if one.name == "redis_acker.components.bolt"]
    assert record.levelname == "WARNING"
    assert "Traceback" in record.getMessage()
    assert record.getMessage().endswith("ValueError: no sevens")


def test_a_failed_tuple_says_why_in_its_own_words(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    run(topology([1], Raises(FailedTuple("the shop is closed"), [1])), store)
    [letter] = store.dead_letters(SPOUT_NAME)
    assert [attempt.error for attempt in letter.history] == ["the shop is closed"]
    assert not letter.fatal
    assert [one for one in caplog.records if one.name == "redis_acker.components.bolt"] == []


def test_a_fatal_tuple_is_not_tried_again(store: Store) -> None:
    bolt = Raises(FailedTuple("not a number", fatal=True), [1])
    runner = run(topology([1, 2], bolt), store, retries=RetryPolicy(max_attempts=9))
    [letter] = store.dead_letters(SPOUT_NAME)
    assert (letter.payload, letter.fatal, len(letter.history)) == ([1], True, 1)
    assert runner.counters()["source"].replayed == 0


@pytest.mark.usefixtures("strict_log")
def test_an_error_that_cannot_be_printed_fails_its_tuple_all_the_same(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    run(topology([1], Raises(Unprintable(), [1])), store)
    [letter] = store.dead_letters(SPOUT_NAME)
    assert letter.history[0].error == "Unprintable"
    assert "Bolt bolt0 raised an error, which fails Tuple((1,), from 'source', 1 roots).\nTraceback" in caplog.text


@pytest.mark.usefixtures("strict_log")
def test_a_failed_tuple_that_cannot_be_printed_and_says_not_whether_it_is_fatal(store: Store) -> None:
    class Closed(FailedTuple):
        def __init__(self) -> None:
            pass

        def __str__(self) -> str:
            raise RuntimeError("no text")

    run(topology([1], Raises(Closed(), [1])), store)
    [letter] = store.dead_letters(SPOUT_NAME)
    assert (letter.history[0].error, letter.fatal) == ("Closed", False)


@pytest.mark.usefixtures("strict_log")
def test_an_error_for_values_that_cannot_be_printed_fails_its_tuple_all_the_same(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def emit_unprintable(collector: OutputCollector, tup: Tuple) -> None:
        collector.emit([Unprintable()], anchors=tup)
        collector.ack(tup)

    def refuse(collector: OutputCollector, tup: Tuple) -> None:
        raise ValueError("no")

    run(topology([1], Does(emit_unprintable), Does(refuse)), store)
    [letter] = store.dead_letters(SPOUT_NAME)
    assert letter.history[0].error == "ValueError: no"
    assert "Tuple(values that cannot be printed, from 'bolt0', 1 roots)" in caplog.text


@pytest.mark.usefixtures("strict_log")
def test_an_error_after_the_ack_that_cannot_be_printed_does_not_end_the_run(store: Store) -> None:
    def ack_and_raise(collector: OutputCollector, tup: Tuple) -> None:
        collector.ack(tup)
        raise Unprintable

    runner = run(topology([1], Does(ack_and_raise)), store)
    assert runner.counters()["source"].acked == 1


def test_an_error_after_the_ack_is_logged_and_does_not_fail_the_tuple(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def ack_and_raise(collector: OutputCollector, tup: Tuple) -> None:
        collector.ack(tup)
        raise ValueError("too late")

    runner = run(topology([1], Does(ack_and_raise)), store)
    assert runner.counters()["source"].acked == 1
    [record] = [one for one in caplog.records if one.name == "redis_acker.components.bolt"]
    assert record.levelno == logging.ERROR
    assert "bolt0 raised an error after Tuple((1,), from 'source', 1 roots) was acked" in record.getMessage()


def test_an_emit_after_the_ack_is_logged_because_the_child_is_lost(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def ack_and_emit(collector: OutputCollector, tup: Tuple) -> None:
        collector.ack(tup)
        collector.emit([1], anchors=tup)

    note = Note()
    run(topology([1], Does(ack_and_emit), note), store)
    assert note.values == []
    assert "emit first, then ack" in caplog.text


@pytest.mark.parametrize(
    ("emit", "error"),
    [
        (
            lambda collector, tup: collector.emit([1], anchors=tup, stream="errors"),
            "'bolt0' emits to stream 'errors', which it does not declare: it has ['default'].",
        ),
        (
            lambda collector, tup: collector.emit([1, 2], anchors=tup),
            "'bolt0' emits 2 values to stream 'default', which has fields ['value'].",
        ),
        (
            lambda collector, tup: collector.emit("x", anchors=tup),
            "'bolt0' emits 'x', which is not a list of values: put it into one.",
        ),
        (
            lambda collector, tup: collector.emit(5, anchors=tup),
            "'bolt0' emits 5, which is not a list of values: put it into one.",
        ),
    ],
    ids=["undeclared stream", "too many values", "a text", "a number"],
)
def test_a_wrong_emit_fails_just_its_tuple_with_a_clear_error(
    store: Store, emit: Callable[[OutputCollector, Tuple], None], error: str
) -> None:
    def emit_wrongly_once(collector: OutputCollector, tup: Tuple) -> None:
        if tup["value"] == 1:
            emit(collector, tup)
        collector.emit(tup.values, anchors=tup)
        collector.ack(tup)

    note = Note()
    run(topology(range(3), Does(emit_wrongly_once), note), store)
    [letter] = store.dead_letters(SPOUT_NAME)
    assert letter.message_id == 1
    assert letter.history[0].error == f"BadInput: {error}"
    assert sorted(note.values) == [0, 2]
