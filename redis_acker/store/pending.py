"""Looks at one root, and lists pending roots page by page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np

from redis_acker.errors import BadInput, Unreadable
from redis_acker.store.hashes import number_of
from redis_acker.store.heads import Head, read_head
from redis_acker.store.ids import BLOCK_BYTES, blocks_of, indexes_of, shards_of, spout_of
from redis_acker.store.message_ids import MessageId
from redis_acker.store.packed import age_ms, check_ids, unpack_ids

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

PAGE_BLOCKS = 50
"""Blocks that a listing reads at once, at least."""

_PAGE_ROOTS = 25_000
_MOST_BLOCKS = 100
"""Lone roots are read in larger pages. Measured on Redis 7.0: 0.4 ms a call for 50 of them, 3 ms for 500."""

SORTED_ROOTS = 100_000
"""How far into a listing to look for the oldest roots: it starts with the oldest bucket, but is unordered inside."""


@dataclass(frozen=True)
class PendingRoot:
    """A pending root in a listing."""

    root: int
    spout: str
    shard: int
    message_id: MessageId | None
    attempt: int
    age_ms: int
    bucket: int
    """0 is the nursery; the highest is expired and waits for the drain."""


@dataclass(frozen=True)
class RootState:
    """Everything that is known about one root."""

    root: int
    state: Literal["pending", "orphan", "finished", "unknown"]
    """orphan: has acks or fails, but no init yet. finished: not long ago. unknown: never seen, or finished long ago."""
    shard: int
    spout: str | None
    ack_val: int | None = None
    message_id: MessageId | None = None
    attempt: int | None = None
    age_ms: int | None = None
    bucket: int | None = None
    expires_in_ms: int | None = None
    """Time until the rotation that expires it; 0 when that is overdue."""


def inspect(acker: Acker, root: int) -> RootState:
    block = blocks_of(np.array([root], dtype=np.uint64))
    shard = int(shards_of(block, acker.settings.shards)[0])
    index = int(indexes_of(np.array([root], dtype=np.uint64))[0])
    reply = acker.shards.inspect(shard, int(block[0]).to_bytes(8, "big"), index)
    bucket, head, ack_val, packed_ids, tick, turned_ms, finished, now_ms = reply
    spout = acker.spout_names().get(spout_of(root))
    if bucket is None:
        return RootState(root, "finished" if finished else "unknown", shard, spout)
    record = read_head(head)
    try:
        check_ids(packed_ids, record.size)
    except Unreadable:
        packed_ids = b""
    if not record.initialised:
        return RootState(root, "orphan", shard, spout, int.from_bytes(ack_val.ljust(8, b"\0"), "little"))
    if index not in record.live:
        return RootState(root, "finished" if index < record.size else "unknown", shard, spout)
    ids, attempts = unpack_ids(packed_ids, range(record.size))
    buckets = acker.settings.buckets
    age_in_ticks = bucket
    if record.ticks is not None:
        age_in_ticks = min(age_in_ticks, _tick_of(tick) - record.ticks[index])
    expires_ms = number_of(turned_ms) + (buckets - age_in_ticks) * acker.settings.tick_ms
    return RootState(
        root,
        "pending",
        shard,
        spout,
        int.from_bytes(ack_val, "little"),
        ids[index],
        attempts[index],
        age_ms(now_ms, record.birth),
        bucket,
        max(0, expires_ms - now_ms),
    )


def list_pending(acker: Acker, *, spout: str | None, shard: int | None, older_than_ms: int) -> Iterator[PendingRoot]:
    """Pending roots, oldest bucket first. A root that stays pending is listed at least once, unless it is extended
    meanwhile."""
    names = {number: name for name, number in acker.known_spouts(spout).items()}
    others = "?" if spout is None else None
    if shard is not None and (not isinstance(shard, int) or not 0 <= shard < acker.settings.shards):
        raise BadInput(f"Namespace {acker.namespace!r} has shards 0 to {acker.settings.shards - 1}, not {shard!r}.")
    shards = range(acker.settings.shards) if shard is None else [shard]
    ticks = {one: _tick_of(acker.shards.meta(one).get("tick")) for one in shards}
    for age in range(acker.settings.buckets, -1, -1):
        for one in shards:
            for pending in _list_bucket(acker, one, ticks[one] - age, age, names, others):
                if pending.age_ms >= older_than_ms:
                    yield pending


def oldest_first(roots: Iterator[PendingRoot], limit: int, *, window: int = SORTED_ROOTS) -> list[PendingRoot]:
    """The oldest roots of a listing, each once; exact if the listing is no longer than the window. Consumes it."""
    return nlargest(limit, _distinct(islice(roots, window)), key=lambda one: one.age_ms)


def _distinct(roots: Iterator[PendingRoot]) -> Iterator[PendingRoot]:
    seen: set[int] = set()
    for one in roots:
        if one.root not in seen:
            seen.add(one.root)
            yield one


def _list_bucket(
    acker: Acker, shard: int, born: int, bucket: int, names: dict[int, str], others: str | None
) -> Iterator[PendingRoot]:
    """others: the name under which roots of spouts without a name are listed; None leaves them out."""
    cursor = b"0"
    blocks = max(PAGE_BLOCKS, min(_MOST_BLOCKS, _PAGE_ROOTS // acker.settings.block_size))
    while True:
        cursor, flat, now_ms = acker.shards.page(shard, born, cursor, blocks)
        for block, head, packed_ids in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            record, first = _read(block, head, packed_ids), int.from_bytes(block, "big")
            name = names.get(spout_of(first), others)
            if name is None or record is None or not record.initialised:
                continue
            ids, attempts = unpack_ids(packed_ids, range(record.size))
            age = age_ms(now_ms, record.birth)
            for index in record.live:
                yield PendingRoot(first + index, name, shard, ids[index], attempts[index], age, bucket)
        if cursor == b"0":
            return


def _tick_of(value: bytes | None) -> int:
    """The tick of a shard, as lua/lib/clock.lua reads it."""
    found = number_of(value)
    return found if 0 <= found < 1 << 31 else 0


def _read(block: bytes, head: bytes, packed_ids: bytes) -> Head | None:
    """None for a record that cannot be read: the rotator sets it aside."""
    try:
        record = read_head(head)
        check_ids(packed_ids, record.size)
    except Unreadable:
        return None
    return record if len(block) == BLOCK_BYTES else None
