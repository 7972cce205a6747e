"""Dead letters as their reader finds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from redis_acker import Acker, DeadLetter
from redis_acker.errors import BadInput
from redis_acker.retries.book import MAX_PAYLOAD_BYTES, FailedAttempt, RetryBook, payload_of
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.store.message_ids import MessageId, id_to_text
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.transport import Argument, Command

SPOUT = "orders"


def bury(acker: Acker, spout: str, count: int) -> list[DeadLetter]:
    book = RetryBook(acker, spout)
    letters = [
        DeadLetter(number, spout, [FailedAttempt(1, "failed", "task", "x" * 100, number)], False, [number])
        for number in range(count)
    ]
    book.bury(*letters)
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


def letter_of(message_id: int, *, at_ms: int = 1, payload: str = "") -> DeadLetter:
    return DeadLetter(message_id, SPOUT, [FailedAttempt(1, "failed", "task", "no", at_ms)], False, [payload])


@pytest.fixture
def calls(acker: Acker, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many letters each call has stored."""
    sizes: list[int] = []
    make_call = Command.call

    def record(name: str, shard: int, keys: Sequence[str], args: Iterable[Argument]) -> Command:
        command = make_call(name, shard, keys, args)
        if name == "bury":
            sizes.append((len(command.args) - len(keys) - 4) // 2)
        return command

    monkeypatch.setattr(Command, "call", record)
    return sizes


def test_letters_of_many_messages_are_stored_by_few_calls(acker: Acker, calls: list[int]) -> None:
    letters = [letter_of(number) for number in range(250)]
    RetryBook(acker, SPOUT).bury(*letters)
    assert calls == [100, 100, 50]
    assert by_id(DeadLetters(acker)) == letters


def test_a_call_stores_few_letters_if_they_are_long(acker: Acker, calls: list[int]) -> None:
    letters = [letter_of(number, payload="x" * 60_000) for number in range(12)]
    RetryBook(acker, SPOUT).bury(*letters)
    assert calls == [5, 5, 2]
    assert by_id(DeadLetters(acker)) == letters


def test_among_many_letters_those_of_a_failure_that_is_stored_stay_as_they_are(acker: Acker, calls: list[int]) -> None:
    book = RetryBook(acker, SPOUT)
    book.bury(letter_of(1, payload="first"), letter_of(2, payload="first"))
    acker.shards.dead(acker.spout_number(SPOUT)).put({id_to_text(3): "not a letter"})
    book.bury(*(letter_of(number, at_ms=max(number, 1), payload="second") for number in range(5)))
    found = {letter.message_id: letter.payload for letter in DeadLetters(acker)}
    assert found == {0: ["second"], 1: ["first"], 2: ["second"], 3: ["second"], 4: ["second"]}
    assert calls == [2, 4]
    assert len(Quarantine(acker.shards)) == 1
