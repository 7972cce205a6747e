"""The head of a block's record, as far as a view needs it; lua/lib/record.lua describes it."""

from __future__ import annotations

from dataclasses import dataclass
from struct import unpack_from

from redis_acker.outcomes import live_indexes

_INITIALISED, _HAS_BITMAP, _HAS_TICKS = 1, 2, 4
_INLINE = 8
_FIXED_BYTES = 8


@dataclass(frozen=True)
class Head:
    """What a listing needs of a head."""

    initialised: bool
    size: int
    birth: int
    live: list[int]
    ticks: tuple[int, ...] | None


def read_head(head: bytes) -> Head:
    flags, size = unpack_from(">BH", head)
    birth = int.from_bytes(head[3:8], "big")
    at = _FIXED_BYTES + (8 * size if size <= _INLINE else 0)
    live = list(range(size))
    if flags & _HAS_BITMAP:
        bitmap_bytes = (size + 7) // 8
        live = live_indexes(head[at + 2 : at + 2 + bitmap_bytes])
        at += 2 + bitmap_bytes
    ticks = unpack_from(f">{size}I", head, at) if flags & _HAS_TICKS else None
    return Head(bool(flags & _INITIALISED), size, birth, live, ticks)
