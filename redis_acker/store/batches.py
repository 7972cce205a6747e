"""Folds roots and ack vals and cuts them into script calls of bounded work.

XOR is associative, so the ack vals of one root are folded before they are sent; a block then travels as one dense
vector, or as (index, ack val) pairs where few of its roots are touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redis_acker.errors import BadInput
from redis_acker.store.ids import Ids, U64Array, as_u64, blocks_of, indexes_of, shards_of, spout_of
from redis_acker.store.message_ids import CheckedIds
from redis_acker.store.packed import (
    ACK_VAL_BYTES,
    INDEX_BYTES,
    PAIR_BYTES,
    pack_ack_vals,
    pack_block,
    pack_count,
    pack_ids,
    pack_indexes,
    pack_pairs,
)

CALL_BUDGET_US = 500.0
"""Server time one call may cost by the estimates below. Rehashing, page faults and a busy machine stretch a call up to
tenfold: this keeps the longest below 5 ms with 10 million roots pending."""

_LONE_US = 5.0
_FIRST_ROOT_US = 8.0  # root 0 alone: most likely of a lone root, but perhaps of a large block
_BLOCK_US = 8.0
_ROOT_US = 0.08
_COMMON_FACTOR = 0.25  # an init of a root whose block has one ack val for all
_PAIR_US = 1.0
_RESTART_FACTOR = 10

_SPARSE_BELOW = 32
"""A block goes as pairs when less than one in this many of its roots is touched: the break-even by server CPU."""

_ALWAYS_SPARSE = 8
"""Blocks with at most this many roots touched go as pairs too: so small ones are kept inside their head."""


@dataclass
class Batch:
    """The part of a batch that one script call carries to one shard."""

    shard: int
    spouts: set[int] = field(default_factory=set)
    sparse: list[bytes] = field(default_factory=list)
    dense: list[bytes] = field(default_factory=list)
    cost_us: float = 0.0


class Span(NamedTuple):
    """The roots of one block inside an array that is sorted by root."""

    block: int
    shard: int
    start: int
    end: int
    size: int
    """One more than the highest index."""

    def packed(self) -> bytes:
        return pack_count(self.block, self.end - self.start)

    def part(self, packed: bytes, width: int) -> bytes:
        """The share of these roots in bytes that hold width for each root of the array."""
        return packed[width * self.start : width * self.end]


def fold(roots: U64Array, ack_vals: U64Array) -> tuple[U64Array, U64Array]:
    """Distinct roots, ascending, and the XOR of the ack vals of each."""
    if len(roots) < 2 or bool((roots[1:] > roots[:-1]).all()):
        return roots, ack_vals
    order = np.argsort(roots, kind="stable")
    ordered = roots[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.bitwise_xor.reduceat(ack_vals[order], starts)


def distinct(roots: Ids) -> U64Array:
    """Each root once, ascending."""
    root_array = as_u64(roots, "roots")
    return fold(root_array, root_array)[0]


def check_init(roots: U64Array, ack_vals: U64Array, block_size: int) -> None:
    """Raises BadInput for what init does not take."""
    if not ack_vals.all():
        raise BadInput("An init with ack val 0 would be complete at once: zero is not an edge, use new_edges().")
    if len(roots) > 1 and not bool((roots[1:] > roots[:-1]).all()):
        raise BadInput("init takes each root once, in ascending order, as allocate() gave them.")
    _check_whole_blocks(roots, block_size)


def _check_whole_blocks(roots: U64Array, block_size: int) -> None:
    """Roots of a block start at index 0 and leave none out: the block is initialised as a whole."""
    if len(roots) == 0:
        return
    indexes = indexes_of(roots)
    follows = (roots[1:] == roots[:-1] + np.uint64(1)) & (indexes[1:] != 0)
    begins = np.concatenate(([True], ~follows))
    if not bool((indexes[begins] == 0).all()):
        first = int(roots[begins][np.flatnonzero(indexes[begins])[0]])
        raise BadInput(
            f"init takes whole blocks as allocate() gave them, and the block of root {first} is not whole: pass all of "
            "its roots in one call."
        )
    if int(indexes.max()) >= block_size:
        raise BadInput(f"Root {int(roots[indexes.argmax()])} is outside a block of {block_size} roots: use allocate().")


def spans(roots: U64Array, shards: int) -> Iterator[Span]:
    """The blocks of ascending distinct roots."""
    if len(roots) == 0:
        return
    blocks = blocks_of(roots)
    starts = np.flatnonzero(np.concatenate(([True], blocks[1:] != blocks[:-1])))
    ends = np.concatenate((starts[1:], [len(roots)]))
    heads = blocks[starts]
    sizes = indexes_of(roots[ends - 1]) + np.uint64(1)
    columns = (heads, shards_of(heads, shards), starts, ends, sizes)
    for block, shard, start, end, size in zip(*(column.tolist() for column in columns), strict=True):
        yield Span(block, shard, start, end, size)


def ack_batches(
    roots: U64Array, ack_vals: U64Array, shards: int, block_size: int, *, restart: bool = False
) -> Iterator[Batch]:
    """The calls that bring folded ack vals to their shards. restart: they restart clocks, which costs more."""
    batches = Batches()
    root_us = _ROOT_US * _RESTART_FACTOR if restart else _ROOT_US
    data = pack_ack_vals(ack_vals)
    pairs = b""
    for span in spans(roots, shards):
        count = span.end - span.start
        if count <= max(_ALWAYS_SPARSE, span.size // _SPARSE_BELOW):
            pairs = pairs or pack_pairs(indexes_of(roots), ack_vals)
            batches.of(span).sparse += (span.packed(), span.part(pairs, PAIR_BYTES))
            yield from batches.charge(span, _touch_us(span, count, block_size))
        else:
            batches.of(span).dense += (span.packed(), _dense(span, roots, ack_vals, data))
            yield from batches.charge(span, _BLOCK_US + span.size * root_us)  # what completes may carry its id
    yield from batches.rest()


def root_batches(roots: U64Array, shards: int, block_size: int) -> Iterator[Batch]:
    """The calls that name roots one by one, for fail."""
    batches = Batches()
    indexes = pack_indexes(indexes_of(roots))
    for span in spans(roots, shards):
        batches.of(span).sparse += (span.packed(), span.part(indexes, INDEX_BYTES))
        yield from batches.charge(span, _touch_us(span, span.end - span.start, block_size))
    yield from batches.rest()


def extend_batches(roots: U64Array, shards: int, block_size: int) -> Iterator[Batch]:
    """The calls that name roots to extend: whole blocks by their names alone, others root by root."""
    batches = Batches()
    indexes = b""
    for span in spans(roots, shards):
        if span.end - span.start == span.size == block_size > 1:
            batches.of(span).dense.append(pack_block(span.block))
            yield from batches.charge(span, _BLOCK_US)
        else:
            indexes = indexes or pack_indexes(indexes_of(roots))
            batches.of(span).sparse += (span.packed(), span.part(indexes, INDEX_BYTES))
            yield from batches.charge(span, _touch_us(span, span.end - span.start, block_size))
    yield from batches.rest()


def init_batches(
    roots: U64Array, ack_vals: U64Array, shards: int, ids: CheckedIds | None, attempts: int | NDArray[np.uint16]
) -> Iterator[Batch]:
    """The calls that initialise whole blocks: block and count of its roots, ack vals, packed ids."""
    batches = Batches()
    data = pack_ack_vals(ack_vals)
    for span in spans(roots, shards):
        block = slice(span.start, span.end)
        packed_ids = pack_ids(
            None if ids is None else ids[block], attempts if isinstance(attempts, int) else attempts[block]
        )
        packed_vals = _dense(span, roots, ack_vals, data)
        batches.of(span).dense += (span.packed(), packed_vals, packed_ids)
        block_us = _LONE_US if span.size == 1 else _BLOCK_US
        root_us = _ROOT_US * (_COMMON_FACTOR if len(packed_vals) < ACK_VAL_BYTES * span.size else 1)
        yield from batches.charge(span, block_us + span.size * root_us + len(packed_ids) * _ROOT_US / 8)
    yield from batches.rest()


class Batches:
    """One open batch per shard; a batch that has cost its budget is closed."""

    def __init__(self) -> None:
        self._open: dict[int, Batch] = {}

    def of(self, span: Span) -> Batch:
        return self._open.setdefault(span.shard, Batch(span.shard))

    def charge(self, span: Span, cost_us: float) -> Iterator[Batch]:
        batch = self._open[span.shard]
        batch.spouts.add(spout_of(span.block))
        batch.cost_us += cost_us
        if batch.cost_us + cost_us > CALL_BUDGET_US:
            yield self._open.pop(span.shard)

    def rest(self) -> Iterator[Batch]:
        yield from self._open.values()


def _touch_us(span: Span, count: int, block_size: int) -> float:
    """The cost of touching some roots of a block: unless it is a lone root, its whole vector is written again."""
    return _FIRST_ROOT_US if span.size == 1 else _BLOCK_US + block_size * _ROOT_US + count * _PAIR_US


def _dense(span: Span, roots: U64Array, ack_vals: U64Array, data: bytes) -> bytes:
    """An ack val for each root from index 0 on; or, if that is the same for all of a large block, that one."""
    if span.end - span.start == span.size:
        own = span.part(data, ACK_VAL_BYTES)
        first = own[:ACK_VAL_BYTES]
        is_common = span.size > _ALWAYS_SPARSE and own.startswith(first, ACK_VAL_BYTES) and own == first * span.size
        return first if is_common else own
    vector = np.zeros(span.size, dtype=np.uint64)
    vector[indexes_of(roots[span.start : span.end]).astype(np.int64)] = ack_vals[span.start : span.end]
    return pack_ack_vals(vector)
