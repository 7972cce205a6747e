"""One root, and pages of pending roots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from redis_acker.errors import BadInput, UnknownSpout
from redis_acker.ids import blocks_of, indexes_of, shards_of, spout_of
from redis_acker.message_ids import MessageId, unpack_ids
from redis_acker.outcomes import age_ms
from redis_acker.transport import Argument, Command
from redis_acker.views.heads import read_head

if TYPE_CHECKING:
    from redis_acker.acker import Acker

PAGE_BLOCKS = 50
"""Blocks read at once in a listing, at least."""

_PAGE_ROOTS = 25_000
_MOST_BLOCKS = 100
"""Lone roots are read in larger pages. Measured on Redis 7.0 a call took 0.4 ms for 50 of them, 3 ms for 500."""

SORTED_ROOTS = 100_000
"""Roots of a listing that are looked at to find the oldest: it begins with the oldest bucket, in no order inside."""


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
    """All that is known of one root."""

    root: int
    state: Literal["pending", "orphan", "finished", "unknown"]
    """orphan: acks or fails came, its init has not. finished: done not long ago. unknown: never seen, or long done."""
    shard: int
    spout: str | None
    ack_val: int | None = None
    message_id: MessageId | None = None
    attempt: int | None = None
    age_ms: int | None = None
    bucket: int | None = None
    expires_in_ms: int | None = None
    """Until the rotation that expires it; 0 when it is overdue."""


def inspect(acker: Acker, root: int) -> RootState:
    block = blocks_of(np.array([root], dtype=np.uint64))
    shard = int(shards_of(block, acker.settings.shards)[0])
    index = int(indexes_of(np.array([root], dtype=np.uint64))[0])
    args: list[Argument] = [int(block[0]).to_bytes(8, "big"), index]
    reply = acker.transport.run_one(acker.block_command("inspect", shard, [], args))
    bucket, head, ack_val, packed_ids, tick, turned_ms, finished, now_ms = reply
    spout = acker.spout_names().get(spout_of(root))
    if not bucket:
        return RootState(root, "finished" if finished else "unknown", shard, spout)
    record = read_head(head)
    if not record.initialised:
        return RootState(root, "orphan", shard, spout, int.from_bytes(ack_val.ljust(8, b"\0"), "little"))
    if index not in record.live:
        return RootState(root, "finished" if index < record.size else "unknown", shard, spout)
    ids, attempts = unpack_ids(packed_ids, range(record.size))
    buckets = acker.settings.buckets
    age_in_ticks = bucket - 1
    if record.ticks is not None:
        age_in_ticks = min(age_in_ticks, int(tick) - record.ticks[index])
    expires_ms = int(turned_ms) + (buckets - age_in_ticks) * acker.settings.tick_ms
    return RootState(
        root,
        "pending",
        shard,
        spout,
        int.from_bytes(ack_val, "little"),
        ids[index],
        attempts[index],
        age_ms(now_ms, record.birth),
        bucket - 1,
        max(0, expires_ms - now_ms),
    )


def list_pending(acker: Acker, *, spout: str | None, shard: int | None, older_than_ms: int) -> Iterator[PendingRoot]:
    """Pending roots, oldest bucket first; a root that is pending all the while is listed once or more,
    unless it is extended meanwhile."""
    names = acker.spout_names()
    if spout is not None and spout not in names.values():
        raise UnknownSpout(f"Namespace {acker.namespace!r} has no spout {spout!r}: it has {sorted(names.values())}.")
    if shard is not None and (not isinstance(shard, int) or not 0 <= shard < acker.settings.shards):
        raise BadInput(f"Namespace {acker.namespace!r} has shards 0 to {acker.settings.shards - 1}, not {shard!r}.")
    shards = range(acker.settings.shards) if shard is None else [shard]
    ticks = {one: int(_tick(acker, one)) for one in shards}
    for age in range(acker.settings.buckets, -1, -1):
        for one in shards:
            for pending in _list_bucket(acker, one, ticks[one] - age, age, names):
                if pending.age_ms >= older_than_ms and spout in (None, pending.spout):
                    yield pending


def oldest_first(roots: Iterator[PendingRoot], limit: int, *, window: int = SORTED_ROOTS) -> list[PendingRoot]:
    """The oldest of a listing, each once: exactly, if it is not longer than the window. Takes what it looks at."""
    return nlargest(limit, _distinct(islice(roots, window)), key=lambda one: one.age_ms)


def _distinct(roots: Iterator[PendingRoot]) -> Iterator[PendingRoot]:
    seen: set[int] = set()
    for one in roots:
        if one.root not in seen:
            seen.add(one.root)
            yield one


def _tick(acker: Acker, shard: int) -> bytes:
    return acker.transport.run_one(Command(shard, ("HGET", acker.shard_keys[shard].meta, "tick"))) or b"0"


def _list_bucket(acker: Acker, shard: int, born: int, bucket: int, names: dict[int, str]) -> Iterator[PendingRoot]:
    cursor: Any = b"0"
    blocks = max(PAGE_BLOCKS, min(_MOST_BLOCKS, _PAGE_ROOTS // acker.settings.block_size))
    while True:
        command = acker.block_command("page", shard, [], [born, cursor, blocks])
        cursor, flat, now_ms = acker.transport.run_one(command)
        for block, head, packed_ids in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            record = read_head(head)
            if not record.initialised:
                continue
            first = int.from_bytes(block, "big")
            name = names.get(spout_of(first), "?")
            ids, attempts = unpack_ids(packed_ids, range(record.size))
            age = age_ms(now_ms, record.birth)
            for index in record.live:
                yield PendingRoot(first + index, name, shard, ids[index], attempts[index], age, bucket)
        if cursor == b"0":
            return
