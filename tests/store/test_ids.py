"""Root and edge ids: how they are read, drawn, laid out and mapped to shards."""

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redis_acker import Acker, new_edge, new_edges
from redis_acker.errors import BadInput
from redis_acker.store.ids import MAX_BLOCK_SIZE, as_u64, blocks_of, indexes_of, make_roots, shards_of, spout_of
from redis_acker.store.transport import Command
from tests.clock import Clock

TOP = 2**64 - 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, [0]),
        (TOP, [TOP]),
        (-1, [TOP]),
        (-(2**63), [2**63]),
        (np.uint64(TOP), [TOP]),
        (np.int64(-1), [TOP]),
        ([], []),
        ([1, -1, TOP, 2**63], [1, TOP, TOP, 2**63]),
        ((np.int8(-1), 5), [TOP, 5]),
        (range(3), [0, 1, 2]),
        ({7: "a", 8: "b"}.keys(), [7, 8]),
        (iter([1, 2]), [1, 2]),
        (np.array([1, TOP], dtype=np.uint64), [1, TOP]),
        (np.array([-1, 2**63 - 1], dtype=np.int64), [TOP, 2**63 - 1]),
        (np.array([-1, 1], dtype=np.int16), [TOP, 1]),
        (np.array([2**32 - 1], dtype=np.uint32), [2**32 - 1]),
        (np.array([TOP, 1], dtype=">u8"), [TOP, 1]),
        (np.array(7), [7]),
        (np.arange(10, dtype=np.uint64)[::3], [0, 3, 6, 9]),
    ],
)
def test_integers_of_every_kind_stand_for_their_64_bits(given: Any, expected: list[int]) -> None:
    found = as_u64(given, "roots")
    assert found.dtype == np.uint64
    assert found.tolist() == expected


@pytest.mark.parametrize(
    "given",
    [
        *(2**64, -(2**63) - 1, [1, 2**64], 1.0, [1, 1.0], "12", b"12", ["1"], None, [None], True, [1, True]),
        *(np.bool_(True), np.array([1.0]), np.array([True]), np.array(["1"]), np.array([[1, 2]]), [[1, 2]]),
        *({1, 2}, frozenset({1}), object()),
    ],
)
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(BadInput, match="roots"):
        as_u64(given, "roots")


def test_an_array_is_not_copied() -> None:
    values = np.arange(5, dtype=np.uint64)
    assert np.shares_memory(as_u64(values, "roots"), values)
    signed = np.arange(5, dtype=np.int64)
    assert np.shares_memory(as_u64(signed, "roots"), signed)


def scripted_urandom(parts: list[bytes]) -> Callable[[int], bytes]:
    def urandom(size: int) -> bytes:
        part = parts.pop(0)
        assert len(part) == size
        return part

    return urandom


def test_an_edge_is_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    zero, one, two = bytes(8), b"\1" + bytes(7), b"\2" + bytes(7)
    monkeypatch.setattr(os, "urandom", scripted_urandom([zero + one, zero + two, two + two]))
    assert new_edges(2).tolist() == [2, 1]


def test_edges_use_all_64_bits_and_differ() -> None:
    edges = new_edges(1000)
    assert len(set(edges.tolist())) == 1000
    assert int(np.bitwise_or.reduce(edges)) == TOP
    assert int(np.bitwise_and.reduce(edges)) == 0
    assert new_edges(0).tolist() == []
    assert new_edge() != new_edge()


def test_a_forked_process_draws_other_edges() -> None:
    """Numpy's generator would be copied with its state."""
    np.random.seed(1)
    random.seed(1)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, new_edges(4).tobytes())
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = np.frombuffer(os.read(reader, 32), dtype=np.uint64)
    assert not set(theirs.tolist()) & set(new_edges(4).tolist())


@pytest.mark.parametrize(("count", "block_size"), [(1, 1), (5, 1), (5, 5), (12, 5), (1024, 1024), (1025, 1024), (0, 5)])
def test_roots_fill_consecutive_blocks(count: int, block_size: int) -> None:
    roots = make_roots(4095, 2**42 - 10_000, count, block_size)
    expected = [(4095 << 52) | (2**42 - 10_000 + i // block_size) << 10 | i % block_size for i in range(count)]
    assert roots.tolist() == expected
    assert {spout_of(root) for root in roots.tolist()} <= {4095}


def test_a_root_is_made_of_its_block_and_its_index() -> None:
    roots = np.array([0, 1, MAX_BLOCK_SIZE - 1, MAX_BLOCK_SIZE, TOP], dtype=np.uint64)
    assert blocks_of(roots).tolist() == [0, 0, 0, MAX_BLOCK_SIZE, TOP - MAX_BLOCK_SIZE + 1]
    assert indexes_of(roots).tolist() == [0, 1, MAX_BLOCK_SIZE - 1, 0, MAX_BLOCK_SIZE - 1]


def test_every_client_maps_a_block_to_the_same_shard() -> None:
    """Written down: another release must not place blocks elsewhere."""
    blocks = np.array([0, 1 << 10, 2 << 10, 5 << 52, (1 << 64) - (1 << 10)], dtype=np.uint64)
    assert shards_of(blocks, 1).tolist() == [0, 0, 0, 0, 0]
    assert shards_of(blocks, 7).tolist() == [0, 6, 1, 1, 4]
    assert shards_of(blocks, 16_384).tolist() == [0, 14777, 13170, 9216, 1606]


def test_neighbouring_blocks_are_spread_evenly() -> None:
    blocks = make_roots(3, 10**9, 8000, 1)
    for shards in (2, 3, 16):
        counts = np.bincount(shards_of(blocks, shards), minlength=shards)
        assert counts.min() > 0.9 * 8000 / shards


def test_roots_are_allocated_in_whole_blocks_that_nobody_else_gets(acker: Acker) -> None:
    first, second = acker.allocate("orders", 1200), acker.allocate("orders", 3)
    other = acker.allocate("payments", 3)
    assert len(set(first.tolist()) | set(second.tolist()) | set(other.tolist())) == 1206
    assert len(set(blocks_of(first).tolist())) == 3
    assert not set(blocks_of(first).tolist()) & set(blocks_of(second).tolist())
    assert acker.allocate("orders", 0).tolist() == []


def test_sequences_never_run_behind_the_clock(acker: Acker, clock: Clock) -> None:
    """What a crashed server forgot it gave away is not given away again."""
    before = acker.allocate("orders", 3 * 500)
    acker.shards.transport.run_one(Command(0, ("DEL", acker.shards.keys[0].sequences)))
    clock.advance(1000)
    after = acker.allocate("orders")
    assert int(after[0]) > int(before.max())
