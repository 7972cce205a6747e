"""Dead messages that are tried again: every source takes it that what it has settled is settled once more."""

from __future__ import annotations

from typing import Any

import pytest

from redis_acker import Acker, FailedTuple, RetryPolicy
from redis_acker.retries.dead_letters import DeadLetters
from tests.spouts.kit import PATIENCE_S, Book, Work, dead_letters, run_until_idle, running
from tests.spouts.places import Place
from tests.spouts.test_every_source import numbers
from tests.waiting import wait_until


def fail_sevens(times: int, value: Any, time: int) -> None:
    """Seven fails so many times, and a first time for good."""
    if int(value) == 7 and time <= times:
        raise FailedTuple(f"attempt {time}", fatal=time == 1)


def replay(acker: Acker) -> None:
    [letter] = dead_letters(acker)
    assert DeadLetters(acker).replay(letter)


@pytest.mark.parametrize("restart", [False, True], ids=["same run", "next run"])
def test_a_dead_message_is_tried_again_until_it_is_complete(place: Place, acker: Acker, restart: bool) -> None:
    place.fill(range(10))
    book, policy = Book(), RetryPolicy(max_attempts=5, first_ms=20, jitter=0)
    bolt = Work(book, lambda value, time: fail_sevens(3, value, time))
    with running(acker, place.spout(), bolt, retries=policy) as runner:
        wait_until(lambda: (did := runner.counters()["source"]).acked == 9 and did.dead == 1, PATIENCE_S)
        if not restart:
            replay(acker)
            wait_until(lambda: runner.counters()["source"].acked == 10, PATIENCE_S)
    if restart:
        replay(acker)
        place.fill(range(10, 12))
        with running(acker, place.spout(), bolt, retries=policy) as runner:
            wait_until(lambda: runner.counters()["source"].acked == 3, PATIENCE_S)

    assert numbers(book) == {**dict.fromkeys(range(12 if restart else 10), 1), 7: 4}
    assert (dead_letters(acker), acker.pending_count(), place.unfinished()) == ([], 0, 0)
    place.fill(range(20, 25))
    later = Book()
    run_until_idle(acker, place.spout(), Work(later))
    assert numbers(later) == dict.fromkeys(range(20, 25), 1)
    assert place.unfinished() == 0
