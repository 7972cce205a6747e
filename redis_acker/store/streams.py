"""Final events: what an entry of a completion or failure stream says. event_reader.py reads them."""

from __future__ import annotations

import re
import reprlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from redis_acker.errors import BadInput, FailedTuple, Unreadable, text_of
from redis_acker.store.ids import U64Array
from redis_acker.store.message_ids import MessageId
from redis_acker.store.packed import Item, age_ms, read_items, unpack_ids

if TYPE_CHECKING:
    pass

Kind = Literal["completions", "failures"]

MAX_COMPONENT_BYTES = 255
MAX_ERROR_BYTES = 2000
"""Longer texts are cut: they only explain a failure to people."""


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
