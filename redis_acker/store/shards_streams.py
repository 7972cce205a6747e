"""The streams of the shards: how their entries are read, held, released, and taken out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redis_acker.store.shards_plain import PlainShards
from redis_acker.store.transport import Command

if TYPE_CHECKING:
    from redis_acker.store.streams import Kind

GROUP = "drivers"
"""The one consumer group of every stream: its members share the entries, and an entry that is released is deleted."""

ENTRIES_AT_ONCE = 20
"""Stream entries read by one command without consuming them. Each holds up to thousands of roots."""

Entry = tuple[bytes, list[bytes]]
"""An entry of a stream: its id, and a flat list of names and values."""


class StreamShards(PlainShards):
    """The shards of one namespace, as far as their streams go. A spout goes by its number here."""

    # -- the consumer group of streams, given by shard and key ---------------------------------------------------

    def join(self, streams: Iterable[tuple[int, str]]) -> None:
        """Creates the consumer group of streams, given by shard and key."""
        self.transport.run(Command.call("join", shard, [key], [GROUP]) for shard, key in streams)

    def release(self, parts: Iterable[tuple[int, str, Sequence[str]]]) -> None:
        """Deletes entries from streams, given by shard, key and ids."""
        self.transport.run(Command.call("release", shard, [key], [GROUP, *entries]) for shard, key, entries in parts)

    def read_group(self, consumer: str, streams: Sequence[tuple[int, str, str]], count: int) -> list[list[Entry]]:
        """Entries of each stream (shard, key, start): from the start on what the consumer holds, with '>' new ones."""
        by_shard: dict[int, list[tuple[str, str]]] = {}
        for shard, key, start in streams:
            by_shard.setdefault(shard, []).append((key, start))
        head = ("XREADGROUP", "GROUP", GROUP, consumer, "COUNT", count, "STREAMS")
        commands = (
            Command(shard, (*head, *(key for key, _ in some), *(start for _, start in some)))
            for shard, some in by_shard.items()
        )
        found: dict[bytes, list[Entry]] = {}
        for reply in self.transport.run(commands):
            found.update(_by_key(reply))
        return [found.get(key.encode(), []) for _, key, _ in streams]

    def claim(
        self, consumer: str, streams: Iterable[tuple[int, str, bytes]], *, after_ms: int, count: int
    ) -> list[tuple[bytes, list[Entry]]]:
        """For each stream (shard, key, start): where to go on, and entries that others have held for so long."""
        head, tail = (GROUP, consumer, after_ms), ("COUNT", count)
        replies = self.transport.run(
            Command(shard, ("XAUTOCLAIM", key, *head, start, *tail)) for shard, key, start in streams
        )
        return [(reply[0], reply[1]) for reply in replies]

    def holds_entries(self, consumer: str, shard: int, key: str) -> bool:
        """Whether a consumer has entries of a stream that it has not released."""
        return bool(self.ask(shard, "XPENDING", key, GROUP, "-", "+", 1, consumer))

    def leave_group(self, consumer: str, shard: int, key: str) -> None:
        """Takes a consumer out of the group of a stream. What it holds would be lost."""
        self.ask(shard, "XGROUP", "DELCONSUMER", key, GROUP, consumer)

    # -- the streams of a spout ----------------------------------------------------------------------------------

    def unread(self, kind: Kind, spout: int) -> list[int]:
        """For each shard: entries of a spout's stream that no reader has released."""
        return self._each("XLEN", lambda keys: keys.stream(kind, spout))

    def entries(self, kind: Kind, spout: int, shard: int, *, newest_first: bool = False) -> Iterator[Entry]:
        """The entries of a stream with their fields, oldest first unless asked otherwise, without consuming them."""
        key = self.keys[shard].stream(kind, spout)
        command, start, end = ("XREVRANGE", "+", "-") if newest_first else ("XRANGE", "-", "+")
        while page := self.ask(shard, command, key, start, end, "COUNT", ENTRIES_AT_ONCE):
            yield from page
            start = f"({page[-1][0].decode()}"

    def first_entry_ms(self, kind: Kind, spout: int, shard: int) -> int | None:
        """When the oldest entry of a stream was written; None without entries."""
        first = self.ask(shard, "XRANGE", self.keys[shard].stream(kind, spout), "-", "+", "COUNT", 1)
        return int(first[0][0].partition(b"-")[0]) if first else None

    def readers_idle_ms(self, kind: Kind, spout: int, shard: int) -> list[int]:
        """For every reader of a stream, the time since it last asked."""
        key = self.keys[shard].stream(kind, spout)
        groups = [group[b"name"] for group in _dicts(self.ask(shard, "XINFO", "GROUPS", key))]
        consumers = (one for name in groups for one in _dicts(self.ask(shard, "XINFO", "CONSUMERS", key, name)))
        return [int(one[b"idle"]) for one in consumers]

    def withdraw(self, spout: int, shard: int, entries: Iterable[tuple[str, bytes]], *, held: bool) -> list[int]:
        """For each failure (entry, note): 1 if it left its stream. held: also one that a consumer has read."""
        keys = [self.keys[shard].failures(spout), self.keys[shard].withdrawn(spout)]
        self.join([(shard, keys[0])])
        return self.transport.run(
            Command.call("withdraw", shard, keys, [GROUP, int(held), entry, note]) for entry, note in entries
        )

    def put_back(self, spout: int, shard: int, entry: str, note: bytes, fields: Mapping[bytes, bytes]) -> None:
        """Moves a withdrawn failure back into its stream. Without fields, only forgets it."""
        keys = [self.keys[shard].failures(spout), self.keys[shard].withdrawn(spout)]
        flat = [part for pair in fields.items() for part in pair]
        self.transport.run_one(Command.call("put_back", shard, keys, [entry, note, *flat]))


def _by_key(reply: list[Any] | None) -> Iterable[tuple[bytes, list[Entry]]]:
    """The streams that had something: [[key, entries], ...], or flat from a client that speaks RESP3."""
    if not reply:
        return ()
    return reply if isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)


def _dicts(reply: list[Any]) -> list[dict[bytes, Any]]:
    """Flat lists of RESP2, or maps of RESP3, as dicts."""
    return [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True)) for one in reply]
