"""Blocks whose roots have one ack val in common: it is kept once, and what comes is applied as if each had its own."""

import numpy as np
import pytest

from redis_acker import Acker, Rotator
from redis_acker.store.ids import U64Array
from redis_acker.store.quarantine import Quarantine
from tests.backends import Backend
from tests.clock import Clock

ROOTS, VAL = 20, 0x0123456789ABCDEF


@pytest.fixture
def acker(backend: Backend, namespace: str, clock: Clock) -> Acker:
    return Acker(backend.target, namespace=namespace, clock=clock, block_size=ROOTS, timeout_ms=30_000)


@pytest.fixture
def roots(acker: Acker) -> U64Array:
    """A block that is pending, with one ack val for all."""
    found = acker.allocate("spout", ROOTS)
    acker.init(found, alike(ROOTS), message_ids=list(range(ROOTS)))
    return found


def alike(count: int, val: int = VAL) -> U64Array:
    return np.full(count, val, dtype=np.uint64)


def bytes_kept(acker: Acker) -> list[int]:
    """Bytes of the ack vals of each block that is pending."""
    keys = [(shard, key) for shard in range(len(acker.shards)) for key in acker.shards.keys[shard].fixed]
    return [len(one) for shard, key in keys if ":vals:" in key for one in acker.shards.ask(shard, "HVALS", key)]


def ack_vals(acker: Acker, roots: U64Array) -> list[int | None]:
    return [acker.inspect(root).ack_val for root in roots.tolist()]


def test_it_is_kept_once_and_each_root_has_it(acker: Acker, roots: U64Array) -> None:
    assert bytes_kept(acker) == [8]
    assert ack_vals(acker, roots) == [VAL] * ROOTS


def test_it_completes_all_roots(acker: Acker, roots: U64Array) -> None:
    assert acker.ack(roots, alike(ROOTS)).completed == ROOTS
    assert (acker.pending_count(), bytes_kept(acker)) == (0, [])


def test_another_that_all_have_in_common_changes_each_of_them(acker: Acker, roots: U64Array) -> None:
    assert acker.ack(roots, alike(ROOTS, 3)).completed == 0
    assert bytes_kept(acker) == [8]
    assert ack_vals(acker, roots) == [VAL ^ 3] * ROOTS
    assert acker.ack(roots, alike(ROOTS, VAL ^ 3)).completed == ROOTS


@pytest.mark.parametrize("count", [1, 12, 19])
def test_acks_of_some_roots_leave_it_to_the_others(acker: Acker, roots: U64Array, count: int) -> None:
    """As pairs, or as a vector."""
    assert acker.ack(roots[:count], alike(count)).completed == count
    assert ack_vals(acker, roots[count:]) == [VAL] * (ROOTS - count)
    assert acker.ack(roots, alike(ROOTS)).completed == ROOTS - count
    assert acker.pending_count() == 0


def test_roots_with_ack_vals_of_their_own_are_acked_by_one_in_common(acker: Acker, roots: U64Array) -> None:
    own = np.arange(1, ROOTS + 1, dtype=np.uint64)
    acker.ack(roots, own)
    assert acker.ack(roots, alike(ROOTS)).completed == 0
    assert ack_vals(acker, roots) == own.tolist()
    assert acker.ack(roots, own).completed == ROOTS


def test_a_root_that_failed_is_not_completed_with_the_others(acker: Acker, roots: U64Array) -> None:
    acker.fail(roots[3:5], component="step", error="bad")
    acks = acker.ack(roots, alike(ROOTS))
    assert (acks.completed, acks.late) == (ROOTS - 2, 2)


def test_one_that_comes_before_the_init_is_kept_for_each_root(acker: Acker) -> None:
    roots = acker.allocate("spout", ROOTS)
    acker.ack(roots, alike(ROOTS))
    assert ack_vals(acker, roots) == [VAL] * ROOTS
    assert acker.init(roots, alike(ROOTS, 3)).completed == 0
    assert ack_vals(acker, roots) == [VAL ^ 3] * ROOTS
    assert acker.ack(roots, alike(ROOTS, VAL ^ 3)).completed == ROOTS


def test_an_ack_of_one_root_that_comes_before_the_init_is_its_own(acker: Acker) -> None:
    roots = acker.allocate("spout", ROOTS)
    acker.ack(roots[:1], alike(1))
    assert acker.init(roots, alike(ROOTS)).completed == 1
    assert acker.ack(roots[1:], alike(ROOTS - 1)).completed == ROOTS - 1


def test_it_moves_with_a_block_whose_clock_was_restarted(acker: Acker, roots: U64Array, clock: Clock) -> None:
    for _ in range(10):
        clock.advance(10_000)
        assert acker.extend(roots) == ROOTS
        Rotator(acker).once()
    assert bytes_kept(acker) == [8]
    assert acker.ack(roots, alike(ROOTS)).completed == ROOTS


def test_it_restarts_the_clocks_of_all_roots_where_acks_do(backend: Backend, namespace: str, clock: Clock) -> None:
    with Acker(
        backend.target, namespace=namespace, clock=clock, block_size=ROOTS, timeout_ms=30_000, ack_restarts_clock=True
    ) as acker:
        roots = acker.allocate("spout", ROOTS)
        acker.init(roots, alike(ROOTS))
        for number in range(1, 11):
            clock.advance(10_000)
            acker.ack(roots, alike(ROOTS, number))
            Rotator(acker).once()
        assert acker.pending_count() == ROOTS


def test_deliveries_that_are_acked_by_their_edges_change_their_roots(acker: Acker, roots: U64Array) -> None:
    assert acker.ack_edges(roots[:12], alike(12)).completed == 12
    assert acker.ack_edges(roots[12:], alike(8)).completed == 8


def test_early_acks_that_were_cut_to_one_are_set_aside(acker: Acker) -> None:
    """Only roots that are pending have one in common."""
    roots = acker.allocate("spout", ROOTS)
    acker.ack(roots, np.arange(1, ROOTS + 1, dtype=np.uint64))
    for shard in range(len(acker.shards)):
        for key in (one for one in acker.shards.keys[shard].fixed if ":vals:" in one):
            for block in acker.shards.ask(shard, "HKEYS", key):
                acker.shards.ask(shard, "HSET", key, block, bytes(8))
    acker.ack(roots[:1], alike(1))
    assert len(Quarantine(acker.shards)) == 1
