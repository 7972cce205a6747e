"""Final events, and how they come back: an entry of a stream goes to one reader, and stays until it is released."""

from __future__ import annotations

import contextlib
import os
import re
import reprlib
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from redis_acker.clock import Signal
from redis_acker.errors import BadInput, FailedTuple, MemoryFull, ScriptFailed, Unreadable, text_of
from redis_acker.store.ids import U64Array
from redis_acker.store.message_ids import MessageId
from redis_acker.store.packed import Item, age_ms, read_items, unpack_ids
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.shards_plain import Entry

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

Kind = Literal["completions", "failures"]

READ_COUNT = 100
"""Entries read from a shard at once."""

CLAIM_AFTER_MS = 60_000
"""An entry that a consumer has held this long without releasing it goes to another."""

MAX_COMPONENT_BYTES = 255
MAX_ERROR_BYTES = 2000
"""Longer texts are cut: they only explain a failure to people."""

_POLL_S = 0.01
_CLAIM_EVERY_S = 1.0


@dataclass(frozen=True)
class Cause:
    """Why roots failed: the component, the error as a text for people, and whether a replay would fail again.

    The reason is `timeout` where a topology has a shorter timeout than its namespace: no component failed them.
    """

    component: str
    error: str
    fatal: bool = False
    reason: Literal["failed", "timeout"] = "failed"

    @classmethod
    def of(cls, component: str, error: BaseException) -> Cause:
        """The cause that an exception in a component is: FailedTuple speaks for itself, others are named."""
        if isinstance(error, FailedTuple):
            return cls(component, text_of(error, with_type=False), error.fatal)
        return cls(component, text_of(error))

    def texts(self) -> tuple[bytes, bytes]:
        """Component and error as they are stored."""
        return _cut(self.component, "component", MAX_COMPONENT_BYTES), _cut(self.error, "error", MAX_ERROR_BYTES)


def _cut(text: str, name: str, most_bytes: int) -> bytes:
    if not isinstance(text, str):
        raise BadInput(f"{name} must be a str, not {reprlib.repr(text)}: pass str() of it.")
    # Cut between two characters: half a character could not be decoded.
    return text.encode(errors="replace")[:most_bytes].decode(errors="ignore").encode()


@dataclass(frozen=True)
class FinalEvents:
    """One entry of a stream: roots that came to their final event in one script call, for one cause."""

    kind: ClassVar[Kind]
    entry: str
    shard: int
    at_ms: int
    items: tuple[Item, ...]
    history: str = field(default="", kw_only=True)
    """Names the history of the shard: it has another one after its server was restarted or replaced, which may have
    lost the last writes. Since when it was seen, in ms by the server's clock, '-' and who; empty where the server does
    not tell."""

    @cached_property
    def roots(self) -> U64Array:
        parts = [np.uint64(item.block) + np.asarray(item.indexes, dtype=np.uint64) for item in self.items]
        return np.concatenate(parts)

    @cached_property
    def ages_ms(self) -> list[int]:
        """Time from init to the final event, for each root."""
        return [age_ms(self.at_ms, item.birth) for item in self.items for _ in item.indexes]

    @cached_property
    def after_restart(self) -> list[bool]:
        """Whether the history began after the init of a root, for each. Then another final event of it may have been
        lost with the last writes, perhaps after somebody read it; acks too, so that a timeout proves nothing."""
        since_ms = int(self.history.partition("-")[0] or 0)
        return [self.at_ms - age < since_ms for age in self.ages_ms]

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
    def known_ids(self) -> list[MessageId]:
        """The message ids of those roots that have one here. Costs nothing if there are none."""
        if not any(item.packed_ids for item in self.items):
            return []
        return [one for one in self.message_ids if one is not None]

    @property
    def attempts(self) -> list[int]:
        return self._ids[1]

    def __len__(self) -> int:
        return sum(len(item.indexes) for item in self.items)


@dataclass(frozen=True)
class Completion(FinalEvents):
    """Roots whose whole tree of work is done."""

    kind = "completions"


@dataclass(frozen=True)
class Failure(FinalEvents):
    """Roots that failed, and everything a replay needs."""

    kind = "failures"
    reason: str
    """'failed' or 'timeout'."""
    component: str
    error: str
    fatal: bool


_NAMES: dict[Kind, set[bytes]] = {
    "completions": {b"at_ms", b"items"},
    "failures": {b"at_ms", b"items", b"reason", b"component", b"error", b"fatal"},
}
_MOST_DIGITS = 15  # of a time in ms
HISTORY = re.compile(r"\d{1,15}-[0-9a-f]{1,40}|")
"""How a history is named; empty if it is not known."""


def parse_entry(kind: Kind, shard: int, entry: bytes, flat: list[bytes]) -> Completion | Failure:
    """A stream entry as the server gives it: its id and a flat list of names and values.

    Raises Unreadable for one that no script has written.
    """
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    if not fields.keys() >= _NAMES[kind]:
        missing = sorted(name.decode() for name in _NAMES[kind] - fields.keys())
        raise Unreadable(f"an entry lacks {', '.join(missing)}")
    at_ms = fields[b"at_ms"]
    if not at_ms.isdigit() or len(at_ms) > _MOST_DIGITS:
        raise Unreadable("at_ms is not a time")
    base = (entry.decode(), shard, int(at_ms), read_items(fields[b"items"]))
    history = fields.get(b"history", b"").decode(errors="replace")
    history = history if HISTORY.fullmatch(history) else ""  # the rest is as true as without it
    if kind == "completions":
        return Completion(*base, history=history)
    reason, component, error = (fields[name].decode(errors="replace") for name in (b"reason", b"component", b"error"))
    if reason not in ("failed", "timeout"):
        raise Unreadable("its reason is neither failed nor timeout")
    return Failure(*base, reason, component, error, fields[b"fatal"] == b"1", history=history)


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
