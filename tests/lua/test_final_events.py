"""One final event per root: complete when its ack val is zero, failed when anyone says so, never both."""

import numpy as np

from redis_acker import new_edge, new_edges
from tests.lua.conftest import OpenLedger
from tests.lua.ledger import SPOUT, Ledger, as_ints


def test_a_root_is_complete_when_every_edge_was_acked(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    child, grandchild = new_edge(), new_edge()
    assert ledger.acker.ack(root, edge ^ child).completed == 0
    assert ledger.acker.ack(root, child ^ grandchild).completed == 0
    assert ledger.completed() == []
    assert ledger.acker.ack(root, grandchild).completed == 1
    assert ledger.completed() == [root]
    assert ledger.acker.pending_count() == 0


def test_a_root_is_not_complete_before_every_child_is(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    children = [new_edge() for _ in range(3)]
    ledger.acker.ack(root, edge ^ children[0] ^ children[1] ^ children[2])
    for child in children[:2]:
        assert ledger.acker.ack(root, child).completed == 0
    assert ledger.acker.inspect(root).ack_val == children[2]


def test_a_late_ack_never_revives(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    ledger.acker.ack(root, edge)
    assert ledger.completed() == [root]
    acks = ledger.acker.ack(root, edge)
    assert (acks.applied, acks.completed, acks.late) == (0, 0, 1)
    assert ledger.acker.inspect(root).state == "finished"
    assert (ledger.completed(), ledger.failed(), ledger.count("late")) == ([], [], 1)
    assert "heads:0" not in ledger.passing_keys()


def test_a_late_ack_never_touches_another_root_of_the_block(ledger: Ledger) -> None:
    for count in (1, 8, 9, 40):
        roots, edges = ledger.start(count + 1)
        ledger.acker.ack(roots[:count], edges[:count])
        acks = ledger.acker.ack(roots[:count], edges[:count])
        assert (acks.applied, acks.late) == (0, count)
        assert ledger.acker.inspect(int(roots[count])).ack_val == edges[count]
        assert ledger.acker.ack(roots[count:], edges[count:]).completed == 1
        assert ledger.completed() == as_ints(roots)


def test_a_late_fail_changes_nothing(ledger: Ledger) -> None:
    roots, edges = ledger.start(2)
    ledger.acker.ack(roots[:1], edges[:1])
    fails = ledger.acker.fail(roots[:1])
    assert (fails.failed, fails.kept, fails.late) == (0, 0, 1)
    ledger.acker.ack(roots[1:], edges[1:])
    fails = ledger.acker.fail(roots)
    assert (fails.failed, fails.kept, fails.late) == (0, 0, 2)
    assert ledger.completed() == as_ints(roots)
    assert ledger.failed() == []
    assert ledger.count("late") == 3


def test_a_stray_ack_leaves_every_pending_root_alone(ledger: Ledger) -> None:
    roots, edges = ledger.start(20)
    other_block, other_spout = ledger.acker.allocate(SPOUT, 20), ledger.acker.allocate("payments", 20)
    never_allocated = np.array([0, 5, 2**64 - 1], dtype=np.uint64)
    for stray in (other_block, other_spout, never_allocated):
        assert ledger.acker.ack(stray, new_edges(len(stray))).completed == 0
    assert [ledger.acker.inspect(root).ack_val for root in as_ints(roots)] == edges.tolist()
    assert ledger.acker.pending_count() == 20


def test_an_ack_past_the_end_of_a_block_is_late(ledger: Ledger) -> None:
    roots, edges = ledger.start(12)
    past = np.arange(1, 4, dtype=np.uint64) + roots[-1]
    assert ledger.acker.ack(past, new_edges(3)).late == 3
    everything = np.concatenate((roots, past))
    acks = ledger.acker.ack(everything, np.concatenate((edges, new_edges(3))))
    assert (acks.applied, acks.completed, acks.late) == (12, 12, 3)
    assert ledger.completed() == as_ints(roots)


def test_an_ack_past_the_end_of_a_small_block_does_not_spoil_it(ledger: Ledger) -> None:
    """A vector that is longer than the block, whose ack vals are kept in its head."""
    roots, edges = ledger.start(5)
    longer = np.arange(12, dtype=np.uint64) + roots[0]
    children = new_edges(12)
    vals = children.copy()
    vals[:5] ^= edges
    acks = ledger.acker.ack(longer, vals, token="longer")
    assert (acks.applied, acks.late) == (5, 7)
    assert ledger.acker.ack(longer, vals, token="longer").duplicates == 12
    assert [ledger.acker.inspect(root).ack_val for root in as_ints(roots)] == children[:5].tolist()
    assert ledger.acker.ack(roots[:2], children[:2]).completed == 2
    assert ledger.acker.ack(roots, children[:5]).completed == 3
    assert ledger.completed() == as_ints(roots)


def test_a_fail_is_reported_at_once(ledger: Ledger) -> None:
    root, _ = ledger.start_one()
    ledger.clock.advance(1234)
    assert ledger.acker.fail(root, component="parse", error="no such field", fatal=True).failed == 1
    [failure] = ledger.failures()
    assert failure[:1] + failure[3:] == (root, 1234, "failed", "parse", "no such field", True)
    assert ledger.acker.pending_count() == 0


def test_a_fail_is_not_fatal_unless_it_says_so(ledger: Ledger) -> None:
    root, _ = ledger.start_one()
    ledger.acker.fail(root)
    assert [one.fatal for one in ledger.failures()] == [False]


def test_fail_wins_over_zero(ledger: Ledger) -> None:
    """Both are there before the init, so that both count at the same moment."""
    roots, edges = ledger.acker.allocate(SPOUT, 3), new_edges(3)
    ledger.acker.ack(roots, edges)
    ledger.acker.fail(roots[1:2], component="join")
    inits = ledger.acker.init(roots, edges)
    assert (inits.initialised, inits.completed, inits.failed) == (3, 2, 1)
    assert ledger.completed() == as_ints(roots[[0, 2]])
    assert [(one.root, one.component) for one in ledger.failures()] == [(int(roots[1]), "join")]


def test_fail_wins_over_zero_for_every_root_of_a_block(ledger: Ledger) -> None:
    for size in (1, 2, 9):
        roots, edges = ledger.acker.allocate(SPOUT, size), new_edges(size)
        ledger.acker.ack(roots, edges)
        ledger.acker.fail(roots)
        inits = ledger.acker.init(roots, edges)
        assert (inits.completed, inits.failed) == (0, size)
        assert ledger.failed() == as_ints(roots)
    assert ledger.completed() == []


def test_a_fail_spares_the_rest_of_its_block(ledger: Ledger) -> None:
    roots, edges = ledger.start(20)
    ledger.acker.fail(roots[3:5])
    assert ledger.acker.ack(roots, edges).completed == 18
    assert ledger.failed() == as_ints(roots[3:5])
    assert ledger.completed() == as_ints(np.delete(roots, [3, 4]))


def test_acks_of_a_failed_root_never_complete_it(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    ledger.acker.fail(root)
    acks = ledger.acker.ack(root, edge)
    assert (acks.completed, acks.late) == (0, 1)
    assert ledger.completed() == []
    assert ledger.failed() == [root]


def test_a_root_fails_once_however_often_it_is_failed(ledger: Ledger) -> None:
    roots, _ = ledger.start(3)
    assert ledger.acker.fail(roots[:2], error="first").failed == 2
    fails = ledger.acker.fail(roots, error="second")
    assert (fails.failed, fails.late) == (1, 2)
    assert [one.error for one in ledger.failures()] == ["first", "first", "second"]


def test_a_long_component_and_error_are_cut_between_characters(ledger: Ledger) -> None:
    root, _ = ledger.start_one()
    ledger.acker.fail(root, component="é" * 300, error="x" + "é" * 3000)
    [failure] = ledger.failures()
    assert (failure.component, failure.error) == ("é" * 127, "x" + "é" * 999)


def test_spouts_get_their_own_final_events(ledger: Ledger) -> None:
    orders, order_edges = ledger.start(5)
    payments, payment_edges = ledger.start(5, "payments")
    roots, edges = np.concatenate((orders, payments)), np.concatenate((order_edges, payment_edges))
    ledger.acker.fail(roots[[0, 5]])
    ledger.acker.ack(roots, edges)
    assert ledger.completed() == as_ints(orders[1:])
    assert ledger.completed("payments") == as_ints(payments[1:])
    assert (ledger.failed(), ledger.failed("payments")) == ([int(orders[0])], [int(payments[0])])
    totals = {one.name: (one.initialised, one.completed, one.failed) for one in ledger.acker.stats().spouts}
    assert totals == {SPOUT: (5, 4, 1), "payments": (5, 4, 1)}


def test_quiet_roots_complete_without_an_entry_and_fail_with_one(ledger: Ledger) -> None:
    roots, edges = ledger.start(10, quiet=True)
    assert ledger.acker.ack(roots[:9], edges[:9]).completed == 9
    ledger.acker.fail(roots[9])
    assert ledger.completed() == []
    assert ledger.failed() == as_ints(roots[9:])
    assert [(one.completed, one.failed) for one in ledger.acker.stats().spouts] == [(9, 1)]


def test_completions_carry_message_ids_only_when_asked_to(ledger: Ledger) -> None:
    for echo in (True, False):
        roots, edges = ledger.start(3, message_ids=["a", "bb", "ccc"], attempts=[1, 2, 3], echo_ids=echo)
        ledger.acker.ack(roots[1], edges[1])
        [completion] = ledger.completions()
        assert completion.message_ids == (["bb"] if echo else [None])
        ledger.acker.ack(roots[[0, 2]], edges[[0, 2]])
        [completion] = ledger.completions()
        assert completion.message_ids == (["a", "ccc"] if echo else [None, None])
        assert completion.attempts == ([1, 3] if echo else [1, 1])


def test_echoed_message_ids_are_those_of_their_roots(ledger: Ledger) -> None:
    """Eight roots of a hundred go as pairs and come back as a bitmap, whose order is that of the indexes."""
    for seed in range(10):
        roots, edges = ledger.start(100, message_ids=[f"m{i}" for i in range(100)], echo_ids=True)
        some = np.random.default_rng(seed).choice(100, 8, replace=False)
        ledger.acker.ack(roots[some], edges[some])
        [completion] = ledger.completions()
        assert completion.message_ids == [f"m{int(root - roots[0])}" for root in completion.roots]
        assert completion.roots.tolist() == as_ints(roots[some])


def test_a_completion_tells_how_long_each_root_took(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    ledger.clock.advance(4321)
    ledger.acker.ack(root, edge)
    [completion] = ledger.completions()
    assert (completion.ages_ms, completion.at_ms) == ([4321], ledger.clock.now_ms)


def test_one_call_makes_one_entry_however_many_roots_complete(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1, block_size=10)
    roots, edges = ledger.start(100)
    ledger.acker.ack(roots, edges)
    completions = ledger.completions()
    assert [len(one) for one in completions] == [100]
    assert as_ints(completions[0].roots) == as_ints(roots)
