"""Dead letters as their reader finds them."""

from __future__ import annotations

from typing import Any

import pytest

from redis_acker import Acker, DeadLetter
from redis_acker.errors import BadInput
from redis_acker.retries.book import MAX_PAYLOAD_BYTES, FailedAttempt, RetryBook, payload_of
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.store.message_ids import MessageId

SPOUT = "orders"


def bury(acker: Acker, spout: str, count: int) -> list[DeadLetter]:
    book = RetryBook(acker, spout)
    letters = [
        DeadLetter(number, spout, [FailedAttempt(1, "failed", "task", "x" * 100, number)], False, [number])
        for number in range(count)
    ]
    for letter in letters:
        book.bury(letter)
    return letters


def by_id(letters: DeadLetters) -> list[DeadLetter]:
    return sorted(letters, key=lambda letter: (letter.spout, letter.message_id))


def test_letters_are_read_by_spout_or_all_together(acker: Acker) -> None:
    ours, theirs = bury(acker, "a/orders/0", 3), bury(acker, "b/orders/0", 2)
    assert by_id(DeadLetters(acker, spout="a/orders/0")) == ours
    assert by_id(DeadLetters(acker)) == ours + theirs
    assert (len(DeadLetters(acker)), len(DeadLetters(acker, spout="b/orders/0"))) == (5, 2)


def test_any_number_of_letters_is_read_a_page_at_a_time(acker: Acker) -> None:
    letters = bury(acker, "orders", 1_000)
    assert by_id(DeadLetters(acker)) == letters


def test_a_letter_that_has_been_dealt_with_is_removed_once(acker: Acker) -> None:
    first, second = bury(acker, "orders", 2)
    letters = DeadLetters(acker)
    assert letters.remove(first)
    assert not letters.remove(first)
    assert list(letters) == [second]


def test_letters_of_a_spout_that_does_not_exist_are_refused_and_do_not_create_it(acker: Acker) -> None:
    bury(acker, "orders", 1)
    with pytest.raises(BadInput, match=r"no spout 'oders': it has \['orders'\]"):
        DeadLetters(acker, spout="oders")
    assert list(acker.spout_names().values()) == ["orders"]


def test_a_namespace_without_spouts_has_no_letters(acker: Acker) -> None:
    letters = DeadLetters(acker)
    assert (len(letters), list(letters)) == (0, [])


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (["a", 1, None, {"b": [True, 2.5]}], True),
        ((1, "two"), True),
        (["\ud800"], True),
        ([b"bytes"], False),
        ([object()], False),
        (["x" * MAX_PAYLOAD_BYTES], False),
        (nested(100_000), False),
    ],
    ids=["JSON", "a tuple", "half a surrogate", "bytes", "an object", "too long", "too deep"],
)
def test_a_dead_letter_keeps_values_that_are_json(values: Any, kept: bool) -> None:
    assert payload_of(values) == (list(values) if kept else None)


def test_a_letter_comes_back_as_it_was_stored(acker: Acker) -> None:
    book = RetryBook(acker, SPOUT)
    history = [FailedAttempt(1, "timeout", "", "", 5), FailedAttempt(2, "failed", "täsk", "no\nway", 7)]
    ids: list[MessageId] = [7, -7, "7", "s:7", "", "ü", b"7", b"", b"\x00\xff"]
    letters = [DeadLetter(message_id, SPOUT, history, False, ["a", 1]) for message_id in ids]
    for letter in letters:
        book.bury(letter)
    assert {letter.message_id: letter for letter in DeadLetters(acker, spout=SPOUT)} == {
        letter.message_id: letter for letter in letters
    }
