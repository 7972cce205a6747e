"""All 64 bits of an ack val count: the right ones complete a root, and one bit off never does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from redis_acker import Acker, Token
from redis_acker.store.ids import INDEX_BITS, U64Array, make_roots
from redis_acker.store.keys import MAX_SPOUT
from redis_acker.store.transport import Command
from tests.backends import Backend
from tests.clock import Clock
from tests.model.reference import Model
from tests.model.values import ALL_BITS, TOP_BIT

ROOTS = 100_000
SPOUT = "edges"

Drawn = np.random.Generator


@pytest.fixture
def acker(backend: Backend, namespace: str) -> Iterator[Acker]:
    with Acker(backend.target, namespace=namespace, clock=Clock(), block_size=1000) as acker:
        yield acker


def with_top_bit(random: Drawn, count: int) -> U64Array:
    return random.integers(0, 1 << 63, count, dtype=np.uint64) | np.uint64(TOP_BIT)


def one_bit(random: Drawn, count: int) -> U64Array:
    return np.uint64(1) << random.integers(0, 64, count, dtype=np.uint64)


def completed(acker: Acker) -> U64Array:
    """The roots completed since the last call, in order."""
    with acker.completions(SPOUT) as completions:
        found = [outcome.roots for outcome in completions.consume()]
    return np.sort(np.concatenate([np.empty(0, dtype=np.uint64), *found]))


def test_100_000_values_with_the_top_bit_set_complete_exactly_when_they_cancel(acker: Acker) -> None:
    random = np.random.default_rng(1)
    roots = acker.allocate(SPOUT, ROOTS)
    edges, children = with_top_bit(random, ROOTS), with_top_bit(random, ROOTS)
    off = np.where(random.random(ROOTS) < 0.5, one_bit(random, ROOTS), np.uint64(0))
    order = random.permutation(ROOTS)

    acker.init(roots, edges)
    acker.ack(roots[order], (edges ^ children)[order])
    assert len(completed(acker)) == 0
    acker.ack(roots[order], (children ^ off)[order])
    assert np.array_equal(completed(acker), roots[off == 0])

    acker.ack(roots[off != 0], off[off != 0])
    assert np.array_equal(completed(acker), roots[off != 0])
    assert acker.pending_count() == 0


@pytest.mark.parametrize("count", [1, 8, 9, 70])
def test_any_bit_off_keeps_a_root_pending(acker: Acker, count: int) -> None:
    """Blocks of one root, blocks kept in their head, and larger ones; acked one by one and as a whole."""
    for ack_at_once in (True, False):
        for edge in (TOP_BIT, ALL_BITS, 1, 1 << 31, 1 << 32, 1 << 53 | 1, 0x0100_0000_0000_0000):
            roots = acker.allocate(SPOUT, count)
            edges = np.full(count, edge, dtype=np.uint64)
            bits = np.uint64(1) << (np.arange(count, dtype=np.uint64) * np.uint64(11) % np.uint64(64))
            acker.init(roots, edges)
            for part in [roots] if ack_at_once else np.array_split(roots, count):
                first = int(part[0] - roots[0])
                acker.ack(part, (edges ^ bits)[first : first + len(part)])
            assert len(completed(acker)) == 0
            acker.ack(roots[:1], bits[:1])
            assert completed(acker).tolist() == roots[:1].tolist()
            acker.ack(roots[1:], bits[1:])
            assert completed(acker).tolist() == roots[1:].tolist()


def test_zero_bytes_that_reach_over_two_words_complete_neither(acker: Acker) -> None:
    roots = acker.allocate(SPOUT, 20)
    acker.init(roots, np.full(20, ALL_BITS, dtype=np.uint64))
    # As bytes: 01 and seven zeros, then zeros up to a last 01.
    left = np.where(np.arange(20) % 2 == 0, np.uint64(1), np.uint64(1 << 56))
    acker.ack(roots, left ^ np.uint64(ALL_BITS))
    assert len(completed(acker)) == 0
    acker.ack(roots[3:4], left[3:4])
    assert completed(acker).tolist() == [roots[3]]


def test_roots_with_the_top_bit_set_are_roots_like_any_other(acker: Acker) -> None:
    random = np.random.default_rng(2)
    acker.shards.transport.run_one(Command(0, ("HSET", acker.shards.keys[0].spouts, SPOUT, MAX_SPOUT)))
    last = make_roots(MAX_SPOUT, (1 << 42) - 2, 1500, acker.settings.block_size)
    assert int(last[0]) >> 63 == 1
    model = Model(acker.settings, Clock())
    edges = with_top_bit(random, len(last))
    some = random.random(len(last)) < 0.5
    for attempt in range(2):  # the second time all of it is recognised
        token = Token.of("only")
        pairs = [
            (acker.init(last, edges), model.init(last.tolist(), edges.tolist())),
            (
                acker.ack(last[some].view(np.int64), edges[some].view(np.int64), token=token),
                model.ack(last[some].tolist(), edges[some].tolist(), token=token),
            ),
        ]
        assert all(found == wanted for found, wanted in pairs), attempt
    assert completed(acker).tolist() == sorted(event.root for event in model.events)
    finished = {int(root) >> INDEX_BITS for root in last[~some]}
    assert {one.root >> INDEX_BITS for one in acker.pending()} == finished
