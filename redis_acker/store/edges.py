"""Deliveries that are acked one by one, by their edges, because a transport may bring them again.

A block remembers the edges that were acked so, 12 bytes each (lua/lib/edges.lua), for as long as it has pending roots.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from redis_acker.errors import BadInput
from redis_acker.store.batches import Batch, Batches, Span, spans
from redis_acker.store.ids import U64Array, indexes_of, spout_of
from redis_acker.store.packed import ACK_VAL_BYTES, EDGE_BYTES, pack_ack_vals, pack_block, pack_edges
from redis_acker.store.shards import Shards
from redis_acker.store.stats import Acks

MOST_EDGES = 2000
"""Deliveries of one block in one call: a message may have any number of them."""

_BLOCK_US = 60.0
_EDGE_US = 0.3
_SPARSE_EDGE_US = 1.5
_SPARSE_BELOW = 8
"""A block gets a vector as well unless less than one in this many of its roots is touched."""


class EdgeState(IntEnum):
    """What is known of a delivery."""

    OPEN = 0
    """It is to be worked on."""
    ACKED = 1
    OVER = 2
    """Its tree is over, or nothing is known of it."""


def ack_deliveries(shards: Shards, roots: U64Array, edges: U64Array, ack_vals: U64Array | None) -> Acks:
    """What is named twice in one call counts once."""
    _check(edges)
    order, firsts, _ = _sorted(roots, edges)
    distinct = order[firsts]
    vals = None if ack_vals is None else ack_vals[distinct]
    batches = _ack_batches(roots[distinct], edges[distinct], vals, len(shards))
    replies = shards.ack_edges(batches, restart=shards.settings.ack_restarts_clock)
    applied, completed, late, duplicates = (sum(reply[i] for reply in replies) for i in range(4))
    return Acks(applied, completed, late, duplicates + len(order) - len(distinct))


def delivery_states(shards: Shards, roots: U64Array, edges: U64Array) -> NDArray[np.uint8]:
    _check(edges)
    order, firsts, which = _sorted(roots, edges)
    distinct = order[firsts]
    places: list[NDArray[np.int64]] = []
    batches = list(_state_batches(roots[distinct], edges[distinct], len(shards), places))
    replies = [np.frombuffer(block, dtype=np.uint8) for reply in shards.edge_states(batches) for block in reply]
    states = np.empty(len(distinct), dtype=np.uint8)
    if places:
        states[np.concatenate(places)] = np.concatenate(replies)
    found = np.empty(len(order), dtype=np.uint8)
    found[order] = states[which]
    return found


# -- edges of what is sent on ----------------------------------------------------------------------------------------


def job_number(name: str) -> int:
    """A number by which the edges that a job sends on differ from those of others."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def child_edges(edges: U64Array, ordinals: U64Array, job: int) -> U64Array:
    """For each delivery the edge of one that is made of it, the ordinal-th of the job: the same when the job works on
    the delivery again, so that whoever gets it twice recognises it."""
    mixed = _mix(edges ^ _mix(ordinals ^ np.uint64(job)))
    return np.where(mixed == 0, np.uint64(1), mixed)


def _mix(words: U64Array) -> U64Array:
    """Spreads every bit over all 64: the finish of MurmurHash3, moved so that 0 does not stay 0."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> np.uint64(33))


# -- how deliveries are named in calls -------------------------------------------------------------------------------


def _check(edges: U64Array) -> None:
    if not edges.all():
        raise BadInput("Zero is not an edge: use those that came with the anchors.")


def _sorted(roots: U64Array, edges: U64Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The order by root and edge; where in that order the distinct deliveries are; and for each place in it, which of
    the distinct ones it is."""
    order = np.lexsort((edges, roots))
    ordered_roots, ordered_edges = roots[order], edges[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (ordered_roots[1:] != ordered_roots[:-1]) | (ordered_edges[1:] != ordered_edges[:-1])
    return order, np.flatnonzero(is_new), np.cumsum(is_new) - 1


def _parts(roots: U64Array, shards: int) -> Iterator[tuple[Span, bool]]:
    """The deliveries of each block, and whether the call must end with them, because more of the block follow."""
    for span in spans(roots, shards):
        for start in range(span.start, span.end, MOST_EDGES):
            end = min(start + MOST_EDGES, span.end)
            yield span._replace(start=start, end=end), span.end - span.start > MOST_EDGES


def _ack_batches(roots: U64Array, edges: U64Array, ack_vals: U64Array | None, shards: int) -> Iterator[Batch]:
    batches, indexes = Batches(), indexes_of(roots).astype(np.int64)
    packed = pack_edges(indexes_of(roots), edges)
    vals = edges if ack_vals is None else ack_vals
    packed_vals = b"" if ack_vals is None else pack_ack_vals(ack_vals)
    for span, is_split in _parts(roots, shards):
        count, vector = span.end - span.start, b""
        if count * _SPARSE_BELOW >= span.size:
            folded = np.zeros(span.size, dtype=np.uint64)
            np.bitwise_xor.at(folded, indexes[span.start : span.end], vals[span.start : span.end])
            vector = pack_ack_vals(folded)
        parts = (pack_block(span.block), span.part(packed, EDGE_BYTES), span.part(packed_vals, ACK_VAL_BYTES), vector)
        yield from _add(batches, span, parts, is_split)
    yield from batches.rest()


def _state_batches(roots: U64Array, edges: U64Array, shards: int, places: list[NDArray[np.int64]]) -> Iterator[Batch]:
    """Adds to places, for each block of each batch in their order, which deliveries are in it."""
    batches, packed = Batches(), pack_edges(indexes_of(roots), edges)
    waiting: dict[int, list[NDArray[np.int64]]] = {}
    for span, is_split in _parts(roots, shards):
        parts = (pack_block(span.block), span.part(packed, EDGE_BYTES))
        mine = np.arange(span.start, span.end)
        if is_split:
            places.append(mine)
        else:
            waiting.setdefault(span.shard, []).append(mine)
        for batch in _add(batches, span, parts, is_split):
            if not is_split:
                places += waiting.pop(batch.shard)
            yield batch
    for batch in batches.rest():
        places += waiting.pop(batch.shard)
        yield batch


def _add(batches: Batches, span: Span, parts: tuple[bytes, ...], is_split: bool) -> Iterator[Batch]:
    """A block is in a call once."""
    if is_split:
        yield Batch(span.shard, {spout_of(span.block)}, dense=list(parts))
        return
    batches.of(span).dense += parts
    count = span.end - span.start
    yield from batches.charge(
        span, _BLOCK_US + count * (_EDGE_US if count * _SPARSE_BELOW >= span.size else _SPARSE_EDGE_US)
    )
