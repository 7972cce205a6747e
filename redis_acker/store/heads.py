"""Heads: what a record says of its block. lua/lib/head.lua describes the format."""

from __future__ import annotations

from dataclasses import dataclass
from struct import unpack_from

from redis_acker.errors import Unreadable
from redis_acker.store.ids import MAX_BLOCK_SIZE
from redis_acker.store.packed import bits_of, whole

_INITIALISED, _HAS_BITMAP, _HAS_TICKS, _HAS_FAILS, _HAS_WORDS = 1, 2, 4, 64, 128
_INLINE = 8
_HEAD = ">BH5s"
_HEAD_BYTES = 8
_WORD_BYTES, _TOKEN_BYTES = 10, 12
_FOR_ALL, _TICK = b"\x80", (1 << 31) - 1
"""The top bit marks a tick that is that of all roots."""


@dataclass(frozen=True)
class Head:
    """What a listing needs of a head."""

    initialised: bool
    size: int
    birth: int
    live: list[int]
    ticks: tuple[int, ...] | None


def read_head(head: bytes) -> Head:
    """Raises Unreadable for what no script has written."""
    with whole("a head"):
        return _read_head(head)


def _read_head(head: bytes) -> Head:
    flags, size, birth = unpack_from(_HEAD, head)
    if size > MAX_BLOCK_SIZE:
        raise Unreadable(f"a block of {size} roots is larger than any")
    at = _HEAD_BYTES + (8 * size if size <= _INLINE else 0)
    live = list(range(size))
    if flags & _HAS_BITMAP:
        bitmap_bytes = (size + 7) // 8
        if unpack_from(">H", head, at)[0] > size:
            raise Unreadable(f"a block of {size} roots has more that are live")
        live = bits_of(head[at + 2 : at + 2 + bitmap_bytes])
        if max(live, default=0) >= max(1, size):
            raise Unreadable(f"a block of {size} roots has live ones behind its last")
        at += 2 + bitmap_bytes
    ticks: tuple[int, ...] | None = None
    if flags & _HAS_TICKS:
        is_one = head[at : at + 1] >= _FOR_ALL
        found = unpack_from(">I" if is_one else f">{size}I", head, at)
        ticks = (found[0] & _TICK,) * size if is_one else found
        at += 4 * len(found)
    at += 4 + unpack_from(">I", head, at)[0] if flags & _HAS_FAILS else 0
    at += 2 + _WORD_BYTES * unpack_from(">H", head, at)[0] if flags & _HAS_WORDS else 0
    if at > len(head) or (len(head) - at) % _TOKEN_BYTES:
        raise Unreadable(f"a head of {len(head)} bytes has not the length that it announces")
    return Head(bool(flags & _INITIALISED), size, int.from_bytes(birth, "big"), live, ticks)
