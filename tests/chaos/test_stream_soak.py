"""A tracked streaming query under random faults, reconciled with an independent log; and what that must notice."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from redis_acker import Acker, DeadLetters, new_edges
from redis_acker.retries.book import DeadLetter, FailedAttempt, RetryBook
from tests.backends import Servers
from tests.chaos.harness import stream
from tests.chaos.harness.journal import Journal, as_runs
from tests.chaos.harness.roots import SPOUT
from tests.chaos.stream_soak import Soak

LAST = 100
POISON = 50
PER_S = POISON / stream.POISON_EVERY_S


@pytest.mark.full
def test_a_query_loses_nothing_and_ends_no_message_twice_whatever_fails() -> None:
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    found = Soak(seed, per_s=500).run(40)
    assert found["is_good"], found


class Ended:
    """What a run leaves behind in which message 50 and 100 were poison."""

    def __init__(self, acker: Acker, folder: Path) -> None:
        self._acker, self._folder = acker, folder
        (folder / stream.FED).write_text(str(LAST))
        self.good = [n for n in range(stream.FIRST, LAST + 1) if n % POISON]

    def leave(self, sunk: list[int], over: list[int], completed: int, dead: list[int]) -> dict[str, int]:
        for name, numbers in (("told", sunk), ("over", over)):
            Journal(self._folder / name).note(name, as_runs(np.array(numbers, dtype=np.uint64)))
        roots, edges = self._acker.allocate(SPOUT, completed), new_edges(completed)
        self._acker.init(roots, edges)
        self._acker.ack(roots, edges)
        attempt = FailedAttempt(5, "failed", "check", "poison", 0)
        book = RetryBook(self._acker, SPOUT)
        book.bury(*(DeadLetter(f"numbers/{n}-1", SPOUT, [attempt], False, None) for n in dead))
        assert len(DeadLetters(self._acker, spout=SPOUT)) == len(dead)
        return {name: count for name, count in stream.judge(self._folder, self._acker, PER_S).wrong.items() if count}


@pytest.fixture
def ended(servers: Servers, namespace: str, tmp_path: Path) -> Ended:
    return Ended(Acker(servers.get("redis-7.0").url, namespace=namespace), tmp_path)


def test_a_run_in_which_all_is_right_is_good(ended: Ended) -> None:
    assert not ended.leave(ended.good, [*ended.good, 50, 100], len(ended.good), [50, 100])


def test_a_message_that_never_ended_is_lost(ended: Ended) -> None:
    assert ended.leave(ended.good, ended.good[1:], len(ended.good) - 1, [50, 100]) == {"lost": 3, "twice": 1}


def test_a_message_that_was_completed_and_not_sunk_is_false(ended: Ended) -> None:
    assert ended.leave(ended.good[1:], [*ended.good, 50, 100], len(ended.good), [50, 100]) == {"false": 1}


def test_a_second_completion_is_noticed(ended: Ended) -> None:
    assert ended.leave(ended.good, [*ended.good, 50, 100], len(ended.good) + 1, [50, 100]) == {"twice": 1}


def test_dead_letters_are_the_poison_and_nothing_else(ended: Ended) -> None:
    found = ended.leave(ended.good, [*ended.good, 50, 100], len(ended.good), [50, 7])
    assert found == {"false": 1, "innocents": 1}
