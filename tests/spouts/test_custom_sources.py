"""Sources that somebody else wrote: ids that cannot be stored, and messages that are handed out several times."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from redis_acker import Acker, Message, Spout
from redis_acker.errors import BadInput
from redis_acker.store.message_ids import MAX_ID_BYTES, MessageId
from tests.spouts.kit import PATIENCE_S, Book, Keep, Work, ack, dead_letters, run_until_idle, running
from tests.waiting import wait_until


class Listed(Spout):
    """Hands out the batches it is made of, then nothing."""

    fields = ("value",)

    def __init__(self, *batches: list[Message]) -> None:
        self._batches = list(batches)
        self.told: list[tuple[str, MessageId]] = []

    def __deepcopy__(self, memo: object) -> Spout:
        return self

    def next_batch(self, limit: int) -> list[Message]:
        return self._batches.pop(0) if self._batches else []

    def ack(self, message_id: MessageId) -> None:
        self.told.append(("ack", message_id))

    def dead(self, message_id: MessageId) -> None:
        self.told.append(("dead", message_id))


@pytest.mark.parametrize(
    ("message_id", "words"),
    [
        ("x" * (MAX_ID_BYTES + 1), f"{MAX_ID_BYTES + 1} bytes is over the limit of {MAX_ID_BYTES}"),
        (1 << 63, "must fit in a signed 64-bit number"),
        ([1], "must be all str, all bytes or all int, not list"),
        ({"a": 1}, "must be all str, all bytes or all int, not dict"),
        (1.5, "must be all str, all bytes or all int, not float"),
        (True, "must be all str, all bytes or all int, not bool"),
        ("\ud800", "is no valid text: pass it as bytes"),
        (object(), "must be all str, all bytes or all int, not object"),
    ],
)
def test_an_id_that_cannot_be_stored_ends_the_run_with_one_clear_error(
    acker: Acker, message_id: Any, words: str
) -> None:
    book = Book()
    with running(acker, Listed([Message(["fine"], 1 if words.endswith("64-bit number") else "1")]), Work(book)):
        wait_until(lambda: len(book) == 1)

    with (
        running(acker, Listed([Message(["bad"], message_id)]), Work(book)) as runner,
        pytest.raises(BadInput) as caught,
    ):
        wait_until(partial(runner.wait_until_idle, timeout_s=10))

    assert words in str(caught.value)
    assert "numbers/source/0" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert book.counts() == {"fine": 1}


def test_the_longest_ids_are_stored(acker: Acker) -> None:
    ids: list[MessageId] = ["ü" * (MAX_ID_BYTES // 2), "", "\x00"]
    spout = Listed([Message([number], one) for number, one in enumerate(ids)])

    run_until_idle(acker, spout, Work(Book()))

    assert spout.told == [("ack", one) for one in ids]


@pytest.mark.parametrize("split", [lambda one: [[one] * 5], lambda one: [[one]] * 5], ids=["one batch", "five batches"])
def test_a_message_that_is_handed_out_again_while_it_is_in_work_is_processed_once(
    acker: Acker, split: Callable[[Message], list[list[Message]]]
) -> None:
    spout, bolt = Listed(*split(Message(["text"], "id"))), Keep(Book())

    with running(acker, spout, bolt) as runner:
        wait_until(lambda: not spout._batches and len(bolt.book) == 1)
        ack(acker, bolt.tuples)
        assert runner.wait_until_idle(timeout_s=PATIENCE_S)

    assert len(bolt.book) == 1
    assert spout.told == [("ack", "id")]


def test_a_message_that_is_handed_out_again_while_it_waits_for_its_replay_is_processed_in_its_time(
    acker: Acker,
) -> None:
    class Impatient(Listed):
        def next_batch(self, limit: int) -> list[Message]:
            return [] if self.told else [Message(["text"], "id")]

    def fail_once(value: Any, time: int) -> None:
        if time == 1:
            raise RuntimeError("not yet")

    spout, book = Impatient(), Book()

    runner = run_until_idle(acker, spout, Work(book, fail_once))

    assert book.counts() == {"text": 2}
    assert runner.drivers[0].counters.replayed == 1
    assert spout.told == [("ack", "id")]


def test_what_a_source_cannot_read_is_a_dead_letter_with_its_error(acker: Acker) -> None:
    spout = Listed([Message(["fine"], "1"), Message(["raw"], "2", error="no such colour"), Message(["fine too"], "3")])
    book = Book()

    run_until_idle(acker, spout, Work(book))

    assert book.counts() == {"fine": 1, "fine too": 1}
    assert sorted(spout.told) == [("ack", "1"), ("ack", "3"), ("dead", "2")]
    [letter] = dead_letters(acker)
    assert (letter.message_id, letter.payload, letter.fatal) == ("2", ["raw"], True)
    assert letter.history[0].error == "no such colour"


def test_what_a_source_cannot_read_is_logged_when_tracking_is_off(caplog: pytest.LogCaptureFixture) -> None:
    spout = Listed([Message(["raw"], "2", error="no such colour"), Message(["raw"], error="no such shape")])

    run_until_idle(None, spout, Work(Book()))

    assert "no such colour" in caplog.text
    assert "no such shape" in caplog.text
    assert spout.told == [("dead", "2")]
