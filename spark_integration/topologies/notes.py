"""Notes in the store about what bolts have in their hands.

Tasks write them for those who come after: the driver, which keeps everything in work alive but what a bolt hangs on,
and the next attempt at the task, which leaves out what was given up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from redis_acker.errors import Unreadable
from redis_acker.store.acker import Acker
from redis_acker.store.hashes import json_of
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.streams import Cause
from redis_acker.topology.task import IN_HANDS

NOTES_EXPIRE_MS = 24 * 3600 * 1000
"""A driver that dies leaves its notes behind for this long."""

NoteState = Literal["begun", "long", "given up"]
"""begun: noted at once, by a task that is told to. long: in work for so long that the driver keeps it alive no more.
given up: not to be worked on."""


@dataclass(frozen=True)
class Note:
    """What a task, or a part of it, is at: a tuple, or prepare() or cleanup() with all its tuples."""

    state: NoteState
    key: str
    """That of the delivery, in hexadecimal."""
    roots: list[int]
    component: str
    what: str
    """For people: the tuple."""
    at_ms: int
    """When the work began, by the clock of the worker."""

    def cause(self) -> Cause:
        age_s = max(0.0, time.time() - self.at_ms / 1000)
        return Cause(self.component, IN_HANDS.format(name=self.component, age_s=age_s))


class Notes:
    """The notes of a run."""

    def __init__(self, acker: Acker, run: str) -> None:
        self._hash, self._quarantine = acker.shards.failed_rows(run), Quarantine(acker.shards)

    def put(self, place: str, note: Note) -> None:
        self._hash.put({place: json.dumps(vars(note))})
        self._hash.expire(NOTES_EXPIRE_MS)

    def remove(self, places: Iterable[str]) -> None:
        self._hash.remove(list(places))

    def read(self) -> dict[str, Note]:
        """By place."""
        return dict(self._quarantine.readable(self._hash, _read))

    def clear(self) -> None:
        self._hash.delete()


def _read(place: bytes, packed: bytes) -> tuple[str, Note]:
    match json_of(packed):
        case {
            "state": "begun" | "long" | "given up" as state,
            "key": str(key),
            "roots": list(roots),
            "component": str(component),
            "what": str(what),
            "at_ms": int(at_ms),
        } if all(type(root) is int and 0 <= root < 1 << 64 for root in roots):
            return place.decode(errors="replace"), Note(state, key, roots, component, what, at_ms)
    raise Unreadable("it is not a note of what a bolt has in its hands")
