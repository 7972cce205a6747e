"""Deliveries that are acked by their edges count once, however often and in whatever batches they come."""

import numpy as np
import pytest

from redis_acker import new_edge, new_edges
from redis_acker.errors import BadInput
from redis_acker.store.edges import MOST_EDGES, EdgeState
from redis_acker.store.ids import U64Array
from tests.lua.ledger import SPOUT, TICK_MS, Ledger, as_ints


def handed_over(ledger: Ledger, messages: int, rows: int) -> tuple[U64Array, U64Array]:
    """Roots that wait for some rows each: for every row its root and its edge."""
    roots = ledger.acker.allocate(SPOUT, messages)
    edges = new_edges(messages * rows)
    ledger.acker.init(roots, np.bitwise_xor.reduce(edges.reshape(messages, rows), axis=1))
    return np.repeat(roots, rows), edges


@pytest.mark.parametrize(("messages", "rows"), [(1, 1), (1, 3), (5, 2), (9, 1), (300, 1), (300, 4), (600, 7)])
def test_overlapping_sets_complete_each_root_once(ledger: Ledger, messages: int, rows: int) -> None:
    roots, edges = handed_over(ledger, messages, rows)
    random = np.random.default_rng(7)
    late = applied = completed = duplicates = 0
    for size in (1, len(roots) // 3, len(roots) // 2, len(roots), len(roots)):
        some = random.choice(len(roots), size)  # with repetitions
        acks = ledger.acker.ack_edges(roots[some], edges[some])
        assert acks.applied + acks.late + acks.duplicates == size
        applied, completed = applied + acks.applied, completed + acks.completed
    rest = ledger.acker.ack_edges(roots, edges)
    late, duplicates = rest.late, rest.duplicates
    assert applied + rest.applied == len(roots)
    assert completed + rest.completed == messages
    assert late + duplicates + rest.applied == len(roots)
    assert sorted(ledger.completed()) == sorted(set(as_ints(roots)))


def test_without_the_memory_of_edges_a_second_delivery_would_undo_the_first(ledger: Ledger) -> None:
    roots, edges = handed_over(ledger, 20, 2)
    ledger.acker.ack_edges(roots[::2], edges[::2])
    again = ledger.acker.ack_edges(roots[::2], edges[::2])
    assert (again.applied, again.duplicates) == (0, 20)
    assert ledger.acker.ack_edges(roots[1::2], edges[1::2]).completed == 20


def test_one_edge_in_two_trees_is_two_deliveries(ledger: Ledger) -> None:
    roots, edge = ledger.acker.allocate(SPOUT, 2), new_edge()
    ledger.acker.init(roots, [edge, edge])
    assert ledger.acker.ack_edges([int(roots[0])], [edge]).completed == 1
    assert ledger.acker.edge_states(roots, [edge, edge]).tolist() == [EdgeState.OVER, EdgeState.OPEN]
    assert ledger.acker.ack_edges(roots, [edge, edge]).completed == 1


def test_what_is_sent_on_takes_the_place_of_a_delivery_once(ledger: Ledger) -> None:
    roots, edges = handed_over(ledger, 30, 1)
    children = new_edges(30)
    for _ in range(2):
        ledger.acker.ack_edges(roots, edges, edges ^ children)
    assert [ledger.acker.inspect(root).ack_val for root in as_ints(roots[:3])] == children[:3].tolist()
    assert ledger.acker.edge_states(roots, edges).tolist() == [EdgeState.ACKED] * 30
    assert ledger.acker.edge_states(roots, children).tolist() == [EdgeState.OPEN] * 30
    assert ledger.acker.ack_edges(roots, children).completed == 30


def test_edges_acked_before_the_init_are_remembered_after_it(ledger: Ledger) -> None:
    roots, edges, others = ledger.acker.allocate(SPOUT, 20), new_edges(20), new_edges(20)
    for _ in range(2):
        ledger.acker.ack_edges(roots, edges)
    assert ledger.acker.edge_states(roots, edges).tolist() == [EdgeState.ACKED] * 20
    ledger.acker.init(roots, edges ^ others)
    assert ledger.acker.ack_edges(roots, edges).duplicates == 20
    assert ledger.acker.ack_edges(roots, others).completed == 20


def test_edges_are_remembered_as_long_as_their_root_is_pending(ledger: Ledger) -> None:
    roots, edges = handed_over(ledger, 12, 2)
    ledger.acker.ack_edges(roots[::2], edges[::2])
    for _ in range(10):
        ledger.acker.extend(roots)
        ledger.pass_time(TICK_MS)
    assert ledger.acker.ack_edges(roots[::2], edges[::2]).duplicates == 12
    assert ledger.acker.ack_edges(roots, edges).completed == 12


def test_what_is_over_or_unknown_is_not_to_be_worked_on(ledger: Ledger) -> None:
    roots, edges = handed_over(ledger, 12, 2)
    ledger.acker.ack_edges(roots[:4], edges[:4])
    ledger.acker.fail(roots[4:6])
    ledger.acker.ack_edges(roots[6:7], edges[6:7])
    states = ledger.acker.edge_states(roots, edges).tolist()
    assert states == [EdgeState.OVER] * 6 + [EdgeState.ACKED] + [EdgeState.OPEN] * 17
    for _ in range(8):
        ledger.pass_time(TICK_MS)
    assert set(ledger.acker.edge_states(roots, edges).tolist()) == {EdgeState.OVER}
    assert ledger.acker.edge_states(ledger.acker.allocate(SPOUT, 1), [1]).tolist() == [EdgeState.OVER]


def test_a_message_may_have_more_rows_than_fit_into_a_call(ledger: Ledger) -> None:
    rows = 2 * MOST_EDGES + 5
    roots, edges = handed_over(ledger, 2, rows)
    order = np.random.default_rng(1).permutation(len(roots))
    first = order[: rows // 2]
    assert ledger.acker.ack_edges(roots[first], edges[first]).applied == len(first)
    is_open = np.ones(len(roots), dtype=bool)
    is_open[first] = False
    assert (ledger.acker.edge_states(roots, edges) == np.where(is_open, EdgeState.OPEN, EdgeState.ACKED)).all()
    acks = ledger.acker.ack_edges(roots[order], edges[order])
    assert (acks.applied, acks.duplicates, acks.completed) == (len(roots) - len(first), len(first), 2)


def test_early_edges_of_roots_that_no_block_can_have_are_late(ledger: Ledger) -> None:
    root = int(ledger.acker.allocate(SPOUT, 1)[0]) + ledger.acker.settings.block_size
    assert ledger.acker.ack_edges([root], [5]).late == 1
    assert ledger.count("orphans") == 0


def test_zero_is_not_an_edge(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="Zero is not an edge"):
        ledger.acker.ack_edges([1], [0])
    with pytest.raises(BadInput, match="Zero is not an edge"):
        ledger.acker.edge_states([1], [0])
