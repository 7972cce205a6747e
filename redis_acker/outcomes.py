"""Final events as they come out of the streams: completions and failures of roots."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from struct import unpack_from
from typing import Literal

import numpy as np

from redis_acker.ids import U64Array
from redis_acker.message_ids import MessageId, unpack_ids

Kind = Literal["completions", "failures"]

_ALL, _LIST = 0, 1
_ITEM = ">Q5sBH"
_ITEM_BYTES = 16


@dataclass(frozen=True)
class _Item:
    """The roots of one block in an entry."""

    block: int
    birth: int
    indexes: list[int]
    packed_ids: bytes


@dataclass(frozen=True)
class Outcome:
    """One entry of a stream: roots that came to their final event in one script call, for one cause."""

    entry: str
    shard: int
    at_ms: int
    items: tuple[_Item, ...]

    @cached_property
    def roots(self) -> U64Array:
        parts = [np.uint64(item.block) + np.asarray(item.indexes, dtype=np.uint64) for item in self.items]
        return np.concatenate(parts)

    @cached_property
    def ages_ms(self) -> list[int]:
        """Time from init to the final event, for each root."""
        return [age_ms(self.at_ms, item.birth) for item in self.items for _ in item.indexes]

    @cached_property
    def _ids(self) -> tuple[list[MessageId | None], list[int]]:
        ids: list[MessageId | None] = []
        attempts: list[int] = []
        for item in self.items:
            some_ids, some_attempts = unpack_ids(item.packed_ids, item.indexes)
            ids += some_ids
            attempts += some_attempts
        return ids, attempts

    @property
    def message_ids(self) -> list[MessageId | None]:
        """The message id of each root; None where the init gave none, or a completion was not asked to echo it."""
        return self._ids[0]

    @property
    def attempts(self) -> list[int]:
        return self._ids[1]

    def __len__(self) -> int:
        return sum(len(item.indexes) for item in self.items)


@dataclass(frozen=True)
class Completion(Outcome):
    """Roots whose whole tree of work is done."""


@dataclass(frozen=True)
class Failure(Outcome):
    """Roots that failed, and everything a replay needs."""

    reason: str
    """'failed' or 'timeout'."""
    component: str
    error: str
    fatal: bool


def parse_entry(shard: int, entry: bytes, flat: list[bytes]) -> Completion | Failure:
    """A stream entry as the server gives it: its id and a flat list of names and values."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    base = (entry.decode(), shard, int(fields[b"at_ms"]), tuple(_parse_items(fields[b"items"])))
    if b"reason" not in fields:
        return Completion(*base)
    reason, component, error = (fields[name].decode(errors="replace") for name in (b"reason", b"component", b"error"))
    return Failure(*base, reason, component, error, fields[b"fatal"] == b"1")


def _parse_items(data: bytes) -> list[_Item]:
    items, at = [], 0
    while at < len(data):
        block, birth, kind, count = unpack_from(_ITEM, data, at)
        at += _ITEM_BYTES
        if kind == _ALL:
            indexes = list(range(count))
        elif kind == _LIST:
            indexes = list(unpack_from(f">{count}H", data, at))
            at += 2 * count
        else:
            indexes = live_indexes(data[at : at + (count + 7) // 8])
            at += (count + 7) // 8
        size = unpack_from(">I", data, at)[0]
        items.append(_Item(block, int.from_bytes(birth, "big"), indexes, data[at + 4 : at + 4 + size]))
        at += 4 + size
    return items


def age_ms(now_ms: int, birth: int) -> int:
    """The age of a record of whose birth time the low 40 bits are kept; 0 if the clock was set back since."""
    age = (now_ms - birth) & ((1 << 40) - 1)
    return age if age < 1 << 39 else 0


def live_indexes(bitmap: bytes) -> list[int]:
    """The positions of the bits that are set."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")).tolist()
