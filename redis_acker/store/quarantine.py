"""What could not be read, because another program wrote to keys of the namespace: set aside whole, for people.

It leaves the place where it was, so that nothing meets it twice and everything else goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from redis_acker.errors import AccessDenied, Unreadable, escaped
from redis_acker.store.hashes import StoredHash
from redis_acker.store.packed import pack_parts, read_set_aside

if TYPE_CHECKING:
    from redis_acker.store.shards import Shards

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SetAside:
    """One thing that could not be read."""

    shard: int
    where: str
    """The key where it was, without its prefix."""
    name: bytes
    """The id of a stream entry, the field of a hash, or a block in hex."""
    at_ms: int
    """When it was set aside, by the server's clock."""
    parts: list[bytes]
    """All it says: names and values of a stream entry, the value of a field, or head, ack vals and ids of a block."""
    field: bytes
    """Its name in the quarantine."""


class Quarantine:
    """The quarantine of a namespace."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def set_aside_entry(self, shard: int, stream: str, entry: bytes, flat: list[bytes], why: Unreadable) -> None:
        where = self._shards.keys[shard].name_of(stream)
        name = f"{where} ".encode() + entry
        if self._shards.set_aside_entry(shard, stream, entry, name, pack_parts(flat)):
            _tell(shard, name, why)

    def set_aside_field(self, found: StoredHash, field: bytes, value: bytes, why: Unreadable) -> None:
        """Leaves it where it is if this user may only read."""
        name = f"{self._shards.keys[found.shard].name_of(found.key)} ".encode() + field
        try:
            moved = self._shards.set_aside_field(found.shard, found.key, field, value, name, pack_parts([value]))
        except AccessDenied:
            return
        if moved:
            _tell(found.shard, name, why)

    def readable(self, found: StoredHash, read: Callable[[bytes, bytes], T], at_once: int | None = None) -> Iterator[T]:
        """What read() makes of each field and value of a hash, a page at a time; sets aside what it cannot read."""
        for field, value in found.items() if at_once is None else found.items(at_once):
            try:
                yield read(field, value)
            except Unreadable as error:
                self.set_aside_field(found, field, value, error)

    def __len__(self) -> int:
        return sum(len(self._shards.quarantine(shard)) for shard in range(len(self._shards)))

    def __iter__(self) -> Iterator[SetAside]:
        """Reads a page at a time. What is there throughout comes exactly once."""
        for shard in range(len(self._shards)):
            seen: set[bytes] = set()
            for field, value in self._shards.quarantine(shard).items():
                if field not in seen:
                    seen.add(field)
                    where, _, name = field.partition(b" ")
                    at_ms, parts = read_set_aside(value)
                    yield SetAside(shard, where.decode(errors="backslashreplace"), name, at_ms, parts, field)

    def remove(self, one: SetAside) -> bool:
        """Deletes it for good. False if it was not there."""
        return bool(self._shards.quarantine(one.shard).remove([one.field]))


def _tell(shard: int, name: bytes, why: Unreadable) -> None:
    log.error(
        "%s of shard %d cannot be read and is set aside (%s): `redis-acker quarantine list` shows it.",
        escaped(name.decode(errors="backslashreplace")),
        shard,
        why,
    )
