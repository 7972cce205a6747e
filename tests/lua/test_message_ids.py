"""Everything a replay needs travels with the failure: message id, attempt, reason, age."""

import itertools
from typing import Any

import numpy as np
import pytest

from redis_acker import new_edges
from redis_acker.store.ids import U64Array
from tests.lua.ledger import SPOUT, TICK_MS, Ledger, as_ints

SIZE = 40

KINDS: dict[str, Any] = {
    "none": None,
    "consecutive integers": np.arange(SIZE) + 2**62,
    "consecutive from below zero": list(range(-SIZE, 0)),
    "integers": [(-1) ** i * (2**63 - 1 - i) for i in range(SIZE)],
    "texts of one width": [f"message {i:03}" for i in range(SIZE)],
    "texts of any width": ["é" * (i % 5) for i in range(SIZE)],
    "empty texts": [""] * SIZE,
    "bytes of one width": [bytes([i, 0, 255 - i]) for i in range(SIZE)],
    "bytes of any width": [b"\0\xff" * (i % 7) for i in range(SIZE)],
    "longest texts": [f"{i:02}" + "x" * 1022 for i in range(SIZE)],
}
ATTEMPTS: dict[str, int | list[int]] = {
    "first": 1,
    "one for all": 65_534,
    "one each": [i * 1000 + 1 for i in range(SIZE)],
}


def ids_of(kind: str) -> list[Any]:
    return [None] * SIZE if KINDS[kind] is None else list(KINDS[kind])


def attempts_of(name: str) -> list[int]:
    found = ATTEMPTS[name]
    return [found] * SIZE if isinstance(found, int) else found


def start_every_kind(ledger: Ledger) -> list[tuple[U64Array, list[Any], list[int]]]:
    """A block for every kind of message ids with every kind of attempts: its roots, ids and attempts."""
    found = []
    for kind, (name, attempts) in itertools.product(KINDS, ATTEMPTS.items()):
        roots, _ = ledger.start(SIZE, message_ids=KINDS[kind], attempts=attempts)
        found.append((roots, ids_of(kind), attempts_of(name)))
    return found


@pytest.mark.parametrize("part", [slice(7, 8), slice(0, 40, 13), slice(1, 30), slice(0, 40)])
def test_message_ids_come_back_with_a_fail_as_they_went_in(ledger: Ledger, part: slice) -> None:
    """One root and three of forty go as a list, more as a bitmap, all of them as the whole block."""
    for roots, ids, attempts in start_every_kind(ledger):
        ledger.acker.fail(roots[part])
        expected = list(zip(as_ints(roots[part]), ids[part], attempts[part], strict=True))
        assert [one[:3] for one in ledger.failures()] == expected


def test_message_ids_come_back_with_a_timeout_as_they_went_in(ledger: Ledger) -> None:
    expected = []
    for roots, ids, attempts in start_every_kind(ledger):
        ledger.acker.fail(roots[3:20])
        expected += [(int(roots[i]), ids[i], attempts[i]) for i in range(SIZE) if not 3 <= i < 20]
    ledger.failures()
    for _ in range(3):
        ledger.pass_time(TICK_MS)
    assert sorted(one[:3] for one in ledger.failures()) == sorted(expected)


def test_a_whole_block_comes_back_with_its_message_ids(ledger: Ledger) -> None:
    for ending in ("failed", "timeout"):
        roots, _ = ledger.start(SIZE, message_ids=KINDS["texts of any width"], attempts=ATTEMPTS["one each"])
        if ending == "failed":
            ledger.acker.fail(roots)
        for _ in range(3):
            ledger.pass_time(TICK_MS)
        failures = ledger.failures()
        assert [one.root for one in failures] == as_ints(roots)
        assert [one.message_id for one in failures] == KINDS["texts of any width"]
        assert [one.attempt for one in failures] == ATTEMPTS["one each"]
        assert {one.reason for one in failures} == {ending}


def test_each_block_of_an_init_keeps_its_own_message_ids(ledger: Ledger) -> None:
    """1200 roots are three blocks: the second and third must not count from the first id of the first."""
    for ids in (np.arange(1200), [f"{i}" for i in range(1200)]):
        roots, _ = ledger.start(1200, message_ids=ids)
        ledger.acker.fail(roots[::100])
        assert [one.message_id for one in ledger.failures()] == list(ids[::100])


@pytest.mark.parametrize("kind", ["texts of any width", "consecutive integers"])
def test_message_ids_outlive_a_refiling(ledger: Ledger, kind: str) -> None:
    roots, _ = ledger.start(SIZE, message_ids=KINDS[kind])
    ledger.pass_time(TICK_MS)
    ledger.acker.extend(roots[[3, 30]])
    for _ in range(2):
        ledger.pass_time(TICK_MS)
    assert len(ledger.failures()) == SIZE - 2
    ledger.pass_time(TICK_MS)
    ids = ids_of(kind)
    assert [one[:2] for one in ledger.failures()] == [(int(roots[i]), ids[i]) for i in (3, 30)]


def test_the_age_of_a_failure_counts_from_the_init(ledger: Ledger) -> None:
    roots = ledger.acker.allocate(SPOUT, 2)
    ledger.acker.fail(roots[0])
    ledger.clock.advance(5000)
    ledger.acker.init(roots, new_edges(2))
    ledger.clock.advance(700)
    ledger.acker.fail(roots[1])
    assert [one.age_ms for one in ledger.failures()] == [0, 700]


def test_a_final_event_stays_in_the_stream_until_it_is_released(ledger: Ledger) -> None:
    roots, edges = ledger.start(2)
    ledger.acker.ack(roots[0], edges[0])
    ledger.acker.fail(roots[1])
    for kind, root in zip(("completions", "failures"), as_ints(roots), strict=True):
        reader = getattr(ledger.acker, kind)(SPOUT, consumer="a")
        assert [one.roots.tolist() for one in reader.read()] == [[root]]
        assert reader.read() == []
        reader = getattr(ledger.acker, kind)(SPOUT, consumer="a")
        outcomes = reader.read()
        assert [one.roots.tolist() for one in outcomes] == [[root]]
        reader.release(outcomes)
    assert (ledger.completed(), ledger.failed()) == ([], [])
