"""Reads final events: an entry of a stream goes to one reader, and stays in it until it is released."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redis_acker.clock import Signal
from redis_acker.errors import MemoryFull, ScriptFailed, Unreadable
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.shards_streams import Entry
from redis_acker.store.streams import FinalEvents, Kind, parse_entry

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

READ_COUNT = 100
"""Entries read from a shard at once."""

CLAIM_AFTER_MS = 60_000
"""An entry that a consumer has held this long without releasing it goes to another."""

_POLL_S = 0.01
_CLAIM_EVERY_S = 1.0

T = TypeVar("T")
AnyEvents = TypeVar("AnyEvents", bound=FinalEvents)


@dataclass(eq=False)
class _Stream:
    """One of the streams of a reader, and how far it has come there."""

    kind: Kind
    shard: int
    key: str
    backlog_from: str | None = "0"
    """From where on to read what the consumer holds already; None: all of that is handed out."""
    claim_from: bytes = b"0"
    handed_out: set[str] = field(default_factory=set)
    """Entries that are not released."""


class EventReader(Generic[AnyEvents]):
    """One consumer of the completions or failures of one spout, or of both, over all shards.

    read() hands out entries, which stay in the stream until release(). What a consumer read and never released is
    handed out again: to itself after a restart under the same name, or to another once it is dead.
    """

    def __init__(
        self,
        acker: Acker,
        spout: str,
        *kinds: Kind,
        consumer: str | None = None,
        claim_after_ms: int = CLAIM_AFTER_MS,
    ) -> None:
        self._shards = acker.shards
        self._quarantine, self._set_aside = Quarantine(acker.shards), 0
        self._troubles = self._shards.troubles
        self._consumer = consumer or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        self._claim_after_ms = claim_after_ms
        self._clock, self._never_set = acker.clock, Signal()
        self._next_claim = 0.0
        number, all_keys = acker.spout_number(spout), list(enumerate(self._shards.keys))
        self._streams = [_Stream(kind, shard, keys.stream(kind, number)) for shard, keys in all_keys for kind in kinds]
        self._by_place = {(stream.kind, stream.shard): stream for stream in self._streams}

    def __enter__(self) -> EventReader[AnyEvents]:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the groups. Entries that were read and not released wait for another consumer to claim them."""
        for stream in self._streams:
            place = self._consumer, stream.shard, stream.key
            if not self._run(partial(self._shards.holds_entries, *place)):
                with contextlib.suppress(MemoryFull):  # Redis 6.2 needs memory for it; an idle member does no harm
                    self._run(partial(self._shards.leave_group, *place))

    def read(self, *, wait_ms: int = 0, only: Kind | None = None) -> list[AnyEvents]:
        """Entries that are new or abandoned, of one kind only if it is told so. Waits up to wait_ms for the first."""
        deadline = self._clock.monotonic_s() + wait_ms / 1000
        streams = [stream for stream in self._streams if only in (None, stream.kind)]
        while True:
            events = self._own_or_new(streams) or self._claim(streams)
            left_s = deadline - self._clock.monotonic_s()
            if events or left_s <= 0:
                return events
            self._clock.poll(self._never_set, min(_POLL_S, left_s), left_s)

    def release(self, events: Sequence[AnyEvents]) -> None:
        """Deletes entries that are dealt with."""
        by_stream: dict[_Stream, list[str]] = {}
        for event in events:
            by_stream.setdefault(self._by_place[event.kind, event.shard], []).append(event.entry)
        self._shards.release(
            (stream.shard, stream.key, entries[at : at + READ_COUNT])
            for stream, entries in by_stream.items()
            for at in range(0, len(entries), READ_COUNT)
        )
        for stream, entries in by_stream.items():
            stream.handed_out.difference_update(entries)

    def rewind(self) -> None:
        """Hands out again what this consumer holds: after an error, it may not know what it has dealt with."""
        for stream in self._streams:
            stream.backlog_from = "0"

    def consume(self) -> Iterator[AnyEvents]:
        """Everything that is there now, one by one. Each is released when the next is asked for."""
        while events := self.read():
            for event in events:
                yield event
                self.release([event])

    def _own_or_new(self, streams: Sequence[_Stream]) -> list[AnyEvents]:
        """First the entries that this consumer was sent and has not handed out, then new ones."""
        while True:
            starts, set_aside = [stream.backlog_from for stream in streams], self._set_aside
            events = self._read_from(streams)
            troubles = self._shards.troubles
            lost_replies = self._troubles != troubles
            if lost_replies:  # they may have carried entries that are this consumer's now
                self._troubles = troubles
                self.rewind()
            has_moved = starts != [stream.backlog_from for stream in streams]
            if events or not (has_moved or lost_replies or self._set_aside != set_aside):
                return events

    def _read_from(self, streams: Sequence[_Stream]) -> list[AnyEvents]:
        """Continues with the backlog of each stream, or with new entries where there is none left."""
        places = [(stream.shard, stream.key, stream.backlog_from or ">") for stream in streams]
        found = self._run(partial(self._shards.read_group, self._consumer, places, READ_COUNT))
        events: list[AnyEvents] = []
        for stream, entries in zip(streams, found, strict=True):
            if stream.backlog_from is not None:
                stream.backlog_from = entries[-1][0].decode() if entries else None
                entries = [one for one in entries if one[0].decode() not in stream.handed_out]
            events += self._hand_out(stream, entries)
        return events

    def _claim(self, streams: Sequence[_Stream]) -> list[AnyEvents]:
        """Entries that another consumer has held for too long."""
        if self._clock.monotonic_s() < self._next_claim:
            return []
        places = [(stream.shard, stream.key, stream.claim_from) for stream in streams]
        claim = partial(self._shards.claim, after_ms=self._claim_after_ms, count=READ_COUNT)
        events: list[AnyEvents] = []
        for stream, (start, entries) in zip(streams, self._run(partial(claim, self._consumer, places)), strict=True):
            stream.claim_from = start
            events += self._hand_out(stream, entries)
        if not events and all(stream.claim_from == b"0-0" for stream in streams):
            self._next_claim = self._clock.monotonic_s() + min(_CLAIM_EVERY_S, self._claim_after_ms / 1000)
        return events

    def _hand_out(self, stream: _Stream, entries: Sequence[Entry]) -> list[AnyEvents]:
        # An entry that was deleted while a consumer held it comes without fields, or as nothing on 6.2.
        events: list[Any] = []
        for entry, flat in (entry for entry in entries if entry and entry[1]):
            try:
                events.append(parse_entry(stream.kind, stream.shard, entry, flat))
            except Unreadable as error:
                self._quarantine.set_aside_entry(stream.shard, stream.key, entry, flat, error)
                self._set_aside += 1
        stream.handed_out.update(event.entry for event in events)
        return events

    def _run(self, ask: Callable[[], T]) -> T:
        """Asks, and once more if streams had no group yet."""
        try:
            return ask()
        except ScriptFailed as error:
            if "NOGROUP" not in str(error):
                raise
        self._shards.join((stream.shard, stream.key) for stream in self._streams)
        self._troubles -= 1  # the error hid the other replies: look for the entries they carried
        return ask()
