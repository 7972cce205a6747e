"""All 2**64 ack vals work, in blocks of every size, however many of their roots are touched."""

from functools import reduce
from operator import xor
from typing import Any

import numpy as np
import pytest

from redis_acker import new_edges
from tests.lua.conftest import OpenLedger
from tests.lua.ledger import SPOUT, TICK_MS, Ledger, as_ints

SIZES = [*range(1, 10), 64, 500, 1024]
"""Up to 8 ack vals are kept in the head; 1024 is the largest block."""

EDGES = [1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]


@pytest.mark.parametrize("size", [1, 20])
def test_values_of_all_64_bits_are_exact(ledger: Ledger, size: int) -> None:
    for edge in EDGES:
        roots, _ = ledger.start(size)
        first = int(roots[0])
        before = ledger.acker.inspect(first).ack_val
        assert before is not None
        ledger.acker.ack(first, edge)
        assert ledger.acker.inspect(first).ack_val == before ^ edge, edge
        everywhere = np.full(size, edge, dtype=np.uint64)
        ledger.acker.ack(roots, everywhere)
        assert ledger.acker.inspect(first).ack_val == before, edge


def test_one_bit_that_is_left_keeps_a_root_pending(ledger: Ledger) -> None:
    for bit in (0, 31, 32, 52, 53, 62, 63):
        roots, edges = ledger.start(20)
        left = np.uint64(1 << bit)
        assert ledger.acker.ack(roots[0], edges[0] ^ left).completed == 0, bit
        assert ledger.acker.ack(roots[1:], edges[1:] ^ left).completed == 0, bit
        assert {ledger.acker.inspect(root).ack_val for root in as_ints(roots[:2])} == {1 << bit}
        assert ledger.acker.ack(roots, np.full(20, left)).completed == 20, bit


def test_signed_values_stand_for_the_same_64_bits(ledger: Ledger) -> None:
    roots = ledger.acker.allocate(SPOUT, 3)
    ledger.acker.init(roots.view(np.int64), [-1, -(2**63), 7])
    assert [ledger.acker.inspect(root).ack_val for root in as_ints(roots)] == [2**64 - 1, 2**63, 7]
    assert ledger.acker.ack(roots, [2**64 - 1, 2**63, 7]).completed == 3


def test_roots_with_the_top_bit_set_work(open_ledger: OpenLedger) -> None:
    """Spout numbers from 2048 on set it; without them roots can be made by hand."""
    ledger = open_ledger(shards=1)
    ledger.acker.allocate(SPOUT)
    roots = np.arange(20, dtype=np.uint64) + np.uint64(0xFFF << 52)
    edges = new_edges(20)
    assert ledger.acker.init(roots, edges, message_ids=np.arange(20)).initialised == 20
    assert ledger.acker.ack(roots[:10], edges[:10]).completed == 10
    assert ledger.acker.ack(as_ints(roots[10:11]), as_ints(edges[10:11])).completed == 1
    assert ledger.acker.fail(roots[11]).failed == 1
    assert ledger.acker.extend(roots) == 8
    ledger.acker.ack(roots, edges)
    client: Any = ledger.backend.client()
    for kind in ("completions", "failures"):
        key = getattr(ledger.acker.shards.keys[0], kind)(0xFFF)
        assert client.xlen(key)
        client.delete(key)


def test_eight_zero_bytes_across_two_ack_vals_complete_nothing(ledger: Ledger) -> None:
    roots = ledger.acker.allocate(SPOUT, 20)
    vals = [2**8 - 1, 2**64 - 2**56] * 10
    ledger.acker.init(roots, new_edges(20))
    current = [ledger.acker.inspect(root).ack_val or 0 for root in as_ints(roots)]
    acks = ledger.acker.ack(roots, [now ^ val for now, val in zip(current, vals, strict=True)])
    assert acks.completed == 0
    assert [ledger.acker.inspect(root).ack_val for root in as_ints(roots)] == vals
    assert ledger.acker.ack(roots, vals).completed == 20


def test_ack_vals_of_one_root_are_folded(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    parts = new_edges(10).tolist()
    acks = ledger.acker.ack([root] * 11, [*parts, reduce(xor, parts, edge)])
    assert (acks.applied, acks.completed) == (1, 1)


def test_an_ack_val_of_zero_changes_nothing(ledger: Ledger) -> None:
    roots, edges = ledger.start(20)
    assert ledger.acker.ack(roots, np.zeros(20, dtype=np.uint64)).completed == 0
    assert ledger.acker.ack(roots[:1], [0]).completed == 0
    assert [ledger.acker.inspect(root).ack_val for root in as_ints(roots)] == edges.tolist()


def test_blocks_of_every_size_complete_as_a_whole(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(block_size=1024)
    for size in SIZES:
        roots, edges = ledger.start(size)
        children = new_edges(size)
        assert ledger.acker.ack(roots, edges ^ children).completed == 0
        assert ledger.acker.ack(roots, children).completed == size
        assert ledger.completed() == as_ints(roots)
    assert not {name for name in ledger.passing_keys() if name.startswith(("heads", "vals", "ids"))}


def test_blocks_of_every_size_complete_bit_by_bit(open_ledger: OpenLedger) -> None:
    """One root, half of the others, the rest of them, and one that fails."""
    ledger = open_ledger(block_size=1024)
    for size in SIZES:
        roots, edges = ledger.start(size, message_ids=[f"m{i}" for i in range(size)])
        order = np.random.default_rng(size).permutation(size)
        one, failed, rest = order[:1], order[1:2], order[2:]
        for part in (one, rest[: size // 2], rest[size // 2 :]):
            assert ledger.acker.ack(roots[part], edges[part]).completed == len(part)
            assert ledger.completed() == as_ints(roots[part])
        assert ledger.acker.fail(roots[failed]).failed == len(failed)
        assert [one.message_id for one in ledger.failures()] == [f"m{i}" for i in failed]
        assert ledger.acker.pending_count() == 0


def test_blocks_of_every_size_time_out_with_their_message_ids(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(block_size=1024)
    expected = []
    for size in SIZES:
        roots, edges = ledger.start(size, message_ids=[f"m{i}" for i in range(size)])
        done = np.flatnonzero(np.random.default_rng(size).integers(0, 2, size))
        ledger.acker.ack(roots[done], edges[done])
        expected += [(int(roots[i]), f"m{i}") for i in range(size) if i not in done]
    for _ in range(3):
        ledger.pass_time(TICK_MS)
    failures = ledger.failures()
    assert [(one.root, one.message_id) for one in failures] == sorted(expected)
    assert {one.reason for one in failures} == {"timeout"}


def test_entries_are_all_or_a_list_or_a_bitmap(open_ledger: OpenLedger) -> None:
    """Whichever is shortest; the kind stands behind block and birth of the first item."""
    ledger = open_ledger(shards=1, block_size=1024)
    client: Any = ledger.backend.client()
    kinds = {}
    for name, touched in {"all": 160, "few": 9, "many": 10, "one": 1}.items():
        roots, edges = ledger.start(160)
        ledger.acker.ack(roots[-touched:], edges[-touched:])
        [(_, fields)] = client.xrange(ledger.acker.shards.keys[0].completions(ledger.acker.spout_number(SPOUT)))
        kinds[name] = fields[b"items"][13]
        assert ledger.completed() == as_ints(roots[-touched:])
    assert kinds == {"all": 0, "few": 1, "many": 2, "one": 1}


def test_more_roots_than_one_call_carries_complete(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(block_size=100)
    roots, edges = ledger.start(20_000)
    order = np.random.default_rng(1).permutation(20_000)
    assert ledger.acker.ack(roots[order], edges[order]).completed == 20_000
    assert ledger.completed() == as_ints(roots)


def test_lone_roots_complete(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(block_size=1)
    roots, edges = ledger.start(600)
    assert ledger.acker.fail(roots[::7]).failed == 86
    assert ledger.acker.ack(roots, edges).completed == 514
    assert ledger.failed() == as_ints(roots[::7])
    assert ledger.completed() == as_ints(np.delete(roots, np.arange(0, 600, 7)))
