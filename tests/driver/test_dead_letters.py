"""Dead letters as their reader finds them."""

from __future__ import annotations

import pytest

from redis_acker import DeadLetter
from redis_acker.errors import BadInput
from redis_acker.retries import DeadLetters, FailedAttempt, RetryBook
from tests.driver.conftest import NewWorld
from tests.driver.world import World


def bury(world: World, spout: str, count: int) -> list[DeadLetter]:
    book = RetryBook(world.acker, spout)
    letters = [
        DeadLetter(number, spout, [FailedAttempt(1, "failed", "task", "x" * 100, number)], False, [number])
        for number in range(count)
    ]
    for letter in letters:
        book.bury(letter)
    return letters


def by_id(letters: DeadLetters) -> list[DeadLetter]:
    return sorted(letters, key=lambda letter: (letter.spout, letter.message_id))


def test_letters_are_read_by_spout_or_all_together(new_world: NewWorld) -> None:
    world = new_world()
    ours, theirs = bury(world, "a/orders/0", 3), bury(world, "b/orders/0", 2)
    assert by_id(DeadLetters(world.acker, spout="a/orders/0")) == ours
    assert by_id(DeadLetters(world.acker)) == ours + theirs
    assert (len(DeadLetters(world.acker)), len(DeadLetters(world.acker, spout="b/orders/0"))) == (5, 2)


def test_any_number_of_letters_is_read_a_page_at_a_time(new_world: NewWorld) -> None:
    world = new_world()
    letters = bury(world, "orders", 1_000)
    assert by_id(DeadLetters(world.acker)) == letters


def test_a_letter_that_has_been_dealt_with_is_removed_once(new_world: NewWorld) -> None:
    world = new_world()
    first, second = bury(world, "orders", 2)
    letters = DeadLetters(world.acker)
    assert letters.remove(first)
    assert not letters.remove(first)
    assert list(letters) == [second]


def test_letters_of_a_spout_that_does_not_exist_are_refused_and_do_not_create_it(new_world: NewWorld) -> None:
    world = new_world()
    bury(world, "orders", 1)
    with pytest.raises(BadInput, match=r"no spout 'oders': it has \['orders'\]"):
        DeadLetters(world.acker, spout="oders")
    assert list(world.acker.spout_names().values()) == ["orders"]


def test_a_namespace_without_spouts_has_no_letters(new_world: NewWorld) -> None:
    letters = DeadLetters(new_world().acker)
    assert (len(letters), list(letters)) == (0, [])
