"""An init may be sent again: it takes effect once."""

import pytest

from redis_acker import Inits, new_edges
from tests.lua.ledger import TICK_MS, Ledger, as_ints


def test_a_second_init_of_a_live_block_changes_nothing(ledger: Ledger) -> None:
    for size in (1, 8, 9, 40):
        roots, edges = ledger.start(size, message_ids=[f"m{i}" for i in range(size)])
        again = ledger.acker.init(roots, new_edges(size), message_ids=["x"] * size, attempts=9, quiet=True)
        assert [ledger.acker.inspect(root).ack_val for root in as_ints(roots)] == edges.tolist()
        assert ledger.acker.pending_count() == size
        assert again == Inits(0, 0, 0, size)
        ledger.acker.fail(roots[0])
        assert [(one.message_id, one.attempt) for one in ledger.failures()] == [("m0", 1)]
        ledger.acker.ack(roots[1:], edges[1:])
        assert ledger.completed() == as_ints(roots[1:])
    assert ledger.count("duplicates") == 1 + 8 + 9 + 40


def test_a_second_init_does_not_restart_the_clock(ledger: Ledger) -> None:
    roots, edges = ledger.start(3)
    for expired in (0, 0, 3):
        assert ledger.acker.init(roots, edges).duplicates == 3
        assert ledger.pass_time(TICK_MS).expired == expired
    assert ledger.failed() == as_ints(roots)


def test_a_second_init_does_not_bring_finished_roots_of_a_live_block_back(ledger: Ledger) -> None:
    roots, edges = ledger.start(20)
    ledger.acker.ack(roots[:10], edges[:10])
    assert ledger.acker.init(roots, edges).duplicates == 20
    assert ledger.acker.pending_count() == 10
    assert ledger.acker.ack(roots, edges).completed == 10
    assert ledger.completed() == as_ints(roots)


@pytest.mark.parametrize("size", [1, 9])
def test_a_repeated_init_of_a_finished_block_is_recognised(ledger: Ledger, size: int) -> None:
    roots, edges = ledger.start(size)
    ledger.acker.ack(roots, edges)
    for _ in range(2):  # the whole timeout
        again = ledger.acker.init(roots, edges)
        assert (again.initialised, again.duplicates) == (0, size)
        ledger.pass_time(TICK_MS)
    assert ledger.acker.init(roots, edges).duplicates == size
    assert ledger.completed() == as_ints(roots)


@pytest.mark.parametrize("ending", ["failed", "timeout"])
def test_a_repeated_init_of_a_failed_block_is_recognised(ledger: Ledger, ending: str) -> None:
    roots, edges = ledger.start(9)
    if ending == "failed":
        ledger.acker.fail(roots)
    else:
        for _ in range(3):
            ledger.pass_time(TICK_MS)
    assert ledger.acker.init(roots, edges).duplicates == 9
    assert [one.reason for one in ledger.failures()] == [ending] * 9
    assert ledger.acker.pending_count() == 0


def test_a_finished_block_is_told_from_its_neighbours(ledger: Ledger) -> None:
    """Neighbours share one bitmap."""
    blocks = [ledger.start(1) for _ in range(30)]
    for roots, edges in blocks[::3]:
        ledger.acker.ack(roots, edges)
    states = [ledger.acker.inspect(int(roots[0])).state for roots, _ in blocks]
    assert states == ["finished" if i % 3 == 0 else "pending" for i in range(30)]
    duplicates = [ledger.acker.init(roots, edges).duplicates for roots, edges in blocks]
    assert duplicates == [1] * 30
    assert ledger.acker.pending_count() == 20


def test_an_init_of_new_and_known_blocks_takes_the_new_ones(ledger: Ledger) -> None:
    known, known_edges = ledger.start(5)
    fresh = ledger.acker.allocate("orders", 5)
    inits = ledger.acker.init([*known.tolist(), *fresh.tolist()], [*known_edges.tolist(), *new_edges(5).tolist()])
    assert (inits.initialised, inits.duplicates) == (5, 5)
    assert ledger.acker.pending_count() == 10
