"""Acks and fails may come in any order, before the init too; what never gets an init leaves nothing behind."""

import itertools

import numpy as np
import pytest

from redis_acker import new_edge, new_edges
from tests.lua.conftest import OpenLedger
from tests.lua.ledger import SPOUT, TICK_MS, TIMEOUT_MS, Ledger, as_ints


def test_acks_in_any_order_complete(ledger: Ledger) -> None:
    for order in itertools.permutations(["init", "first", "second", "third"]):
        root, edge = int(ledger.acker.allocate(SPOUT)[0]), new_edge()
        left, right = new_edge(), new_edge()
        acks = {"first": edge ^ left ^ right, "second": left, "third": right}
        completed = []
        for step in order:
            done = ledger.acker.init(root, edge) if step == "init" else ledger.acker.ack(root, acks[step])
            completed.append(done.completed)
        assert completed == [0, 0, 0, 1], order
        assert ledger.completed() == [root], order


def test_acks_before_the_init_complete_a_whole_block(ledger: Ledger) -> None:
    for size in (1, 8, 9, 40):
        roots, edges = ledger.acker.allocate(SPOUT, size), new_edges(size)
        assert ledger.acker.ack(roots, edges).completed == 0
        assert ledger.acker.inspect(int(roots[0])).state == "orphan"
        inits = ledger.acker.init(roots, edges)
        assert (inits.initialised, inits.completed) == (size, size)
        assert ledger.completed() == as_ints(roots)


def test_acks_before_the_init_complete_their_roots_alone(ledger: Ledger) -> None:
    roots, edges = ledger.acker.allocate(SPOUT, 40), new_edges(40)
    ledger.acker.ack(roots[7], edges[7])
    ledger.acker.ack(roots[20:], edges[20:])
    assert ledger.acker.init(roots, edges).completed == 21
    assert ledger.acker.ack(roots[:20], edges[:20]).completed == 19
    assert ledger.completed() == as_ints(roots)


def test_a_fail_before_init_still_fails_the_root(ledger: Ledger) -> None:
    roots, edges = ledger.acker.allocate(SPOUT, 3), new_edges(3)
    fails = ledger.acker.fail(roots[1], component="parse", error="broken", fatal=True)
    assert (fails.failed, fails.kept) == (0, 1)
    assert ledger.failed() == []
    inits = ledger.acker.init(roots, edges, message_ids=["a", "b", "c"], attempts=[1, 2, 3])
    assert (inits.initialised, inits.failed) == (3, 1)
    assert ledger.failures() == [(int(roots[1]), "b", 2, 0, "failed", "parse", "broken", True)]
    assert ledger.acker.ack(roots, edges).completed == 2


def test_every_root_of_a_block_may_fail_before_the_init(ledger: Ledger) -> None:
    roots, edges = ledger.acker.allocate(SPOUT, 20), new_edges(20)
    assert ledger.acker.fail(roots).kept == 20
    assert ledger.acker.init(roots, edges).failed == 20
    assert ledger.failed() == as_ints(roots)
    assert ledger.acker.pending_count() == 0


def test_the_first_of_two_early_fails_stands(ledger: Ledger) -> None:
    root, edge = int(ledger.acker.allocate(SPOUT)[0]), new_edge()
    ledger.acker.fail(root, component="first", error="a")
    fails = ledger.acker.fail(root, component="second", error="b")
    assert (fails.kept, fails.late) == (0, 1)
    ledger.acker.init(root, edge)
    assert [(one.component, one.error) for one in ledger.failures()] == [("first", "a")]


def test_where_much_is_kept_the_texts_of_early_fails_are_cut_short(ledger: Ledger) -> None:
    roots, edges = ledger.acker.allocate(SPOUT, 100), new_edges(100)
    for root in roots:
        ledger.acker.fail(root, component="parse", error="e" * 2000)
    assert ledger.acker.init(roots, edges).failed == 100
    failures = ledger.failures()
    assert [one.root for one in failures] == as_ints(roots)
    assert {(one.component, len(one.error)) for one in failures[:20]} == {("parse", 2000)}
    assert {(one.component, one.error) for one in failures[30:]} == {("parse", "e" * 100)}


def test_early_acks_and_fails_past_the_end_of_the_block_are_late(ledger: Ledger) -> None:
    roots, edges = ledger.acker.allocate(SPOUT, 5), new_edges(5)
    past = np.arange(1, 13, dtype=np.uint64) + roots[-1]
    ledger.acker.ack(past, new_edges(12))
    ledger.acker.fail(past[:2])
    assert ledger.acker.init(roots, edges).initialised == 5
    assert ledger.count("late") == 14
    assert ledger.acker.ack(roots, edges).completed == 5


def test_the_clock_of_a_root_runs_from_its_init_not_from_an_early_ack(ledger: Ledger) -> None:
    root, edge = int(ledger.acker.allocate(SPOUT)[0]), new_edge()
    ledger.acker.ack(root, new_edge())
    for _ in range(2):
        assert ledger.pass_time(TICK_MS).turned == 2
    ledger.acker.init(root, edge)
    ledger.pass_time(TIMEOUT_MS - 1)
    assert ledger.acker.inspect(root).state == "pending"
    ledger.pass_time(TICK_MS + 1)
    assert [(one.root, one.reason) for one in ledger.failures()] == [(root, "timeout")]


@pytest.mark.parametrize("size", [1, 40])
def test_an_orphan_expires_silently_and_is_counted(ledger: Ledger, size: int) -> None:
    roots = ledger.acker.allocate(SPOUT, size)
    ledger.acker.ack(roots, new_edges(size))
    ledger.acker.fail(roots[:1])
    orphans = [ledger.pass_time(TICK_MS).orphans for _ in range(4)]
    assert orphans == [0, 0, 1, 0]
    assert ledger.count("orphans") == 1
    assert (ledger.completed(), ledger.failed(), ledger.passing_keys()) == ([], [], set())
    assert ledger.acker.inspect(int(roots[0])).state == "unknown"


def test_an_orphan_lives_as_long_as_a_root_would(ledger: Ledger) -> None:
    """A spout that inits late, but within the timeout, loses no ack."""
    root, edge = int(ledger.acker.allocate(SPOUT)[0]), new_edge()
    ledger.pass_time(TICK_MS - 1)
    ledger.acker.ack(root, edge)
    assert ledger.pass_time(TIMEOUT_MS).orphans == 0
    assert ledger.acker.init(root, edge).completed == 1
    assert ledger.completed() == [root]


def test_an_orphan_in_the_expired_bucket_is_adopted_until_its_drain(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1)
    roots, edges = ledger.acker.allocate(SPOUT, 12), new_edges(12)
    ledger.acker.ack(roots, edges)
    ledger.expire_undrained()
    assert ledger.acker.init(roots, edges).completed == 12
    assert ledger.rotator.drain(0)[:2] == (0, 0)
    assert ledger.completed() == as_ints(roots)


def test_what_was_allocated_and_never_initialised_is_not_pending(ledger: Ledger) -> None:
    ledger.acker.allocate(SPOUT, 1000)
    assert ledger.acker.pending_count() == 0
    assert list(ledger.acker.pending()) == []
    assert ledger.passing_keys() == set()
