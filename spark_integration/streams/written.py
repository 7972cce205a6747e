"""Which parts of a micro-batch are written, in jobs whose driver completes the messages. It is noted before they are
acked: if the query dies then, the next start acks them, and writes nothing again."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, field

import numpy as np

from redis_acker import Acker
from redis_acker.errors import Unreadable
from redis_acker.store.hashes import json_of
from redis_acker.store.progress import KEPT_FOR_MS, RunProgress
from redis_acker.store.quarantine import Quarantine
from spark_integration.runs.in_stream import Spans
from spark_integration.runs.portions import own_edges
from spark_integration.streams.spout import StreamSpout, Written

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartNote:
    """A part that is written."""

    batch: str
    """Names the micro-batch."""
    rows: int
    token: str = ""
    """Under which it is acked."""
    lives: list[str] = field(default_factory=list)
    """Of the servers, when its run began."""
    spans: Spans = field(default_factory=list)
    """Of its roots; empty once they are acked."""
    failed: list[int] = field(default_factory=list)
    """Roots that have failed. A server may forget that: an ack must not complete them then."""


class WrittenParts:
    """The parts of one micro-batch that are written, each named as run_in_parts() does. Each object has fields of its
    own: a query that has lost its spout, and does not know it yet, must not take away what its successor has noted."""

    def __init__(self, acker: Acker, spout: StreamSpout, batch: str, *, are_there: bool = True) -> None:
        """are_there: whether an earlier query may have left notes."""
        self._acker, self._batch = acker, batch
        self._progress = RunProgress(acker, spout.number)
        self._stored, self._writer = spout.written_parts, os.urandom(8).hex()
        found = Quarantine(acker.shards).readable(self._stored, _note_of) if are_there else ()
        self._notes = dict(found)
        """By field."""

    def __bool__(self) -> bool:
        """Whether something of the micro-batch was written before."""
        return any(note.batch == self._batch for note in self._notes.values())

    def is_split(self, part: str) -> bool:
        """Whether it was found that a part has to be done in smaller ones."""
        parts = [_part_of(one) for one, note in self._notes.items() if note.batch == self._batch]
        return any(one != part and one.startswith(part) for one in parts)

    def finish(self, part: str) -> int | None:
        """Acks a part that is written. Returns how many rows it has; None if it has to be done."""
        fields = [one for one, note in self._notes.items() if (_part_of(one), note.batch) == (part, self._batch)]
        if not fields:
            return None
        proven = [note for note in map(self._notes.__getitem__, fields) if self._is_proven(note)]
        if not proven:
            log.warning(
                "%s was written, and is done again: a server was restarted or replaced since, and may have lost that "
                "rows have failed.",
                self._batch,
            )
            self._remove(fields)
            return None
        for note in proven:
            self._ack(note)
        rows = max(note.rows for note in proven)
        self.done(part, rows)
        return rows

    def _is_proven(self, note: PartNote) -> bool:
        """Whether what has failed in it is known for certain."""
        return not note.spans or note.lives == self._acker.shards.server_lives()

    def _ack(self, note: PartNote) -> None:
        for first, rows in note.spans:
            roots = np.setdiff1d(self._progress.roots_of(first, rows), np.array(note.failed, dtype=np.uint64))
            if self._acker.extend(roots):  # else they are complete, or have timed out: the store need not keep the acks
                self._acker.ack(roots, own_edges(roots), token=note.token)

    def done(self, part: str, rows: int) -> None:
        """Nothing of a part is pending any more."""
        self._put(part, PartNote(self._batch, rows))

    def forget(self, part: str) -> None:
        """The part that was noted here has to be done again."""
        self._remove([self._field(part)])

    def drop(self) -> None:
        """Forgets all that was found, or noted here."""
        self._remove(list(self._notes))

    def _remove(self, fields: list[str]) -> None:
        if fields:
            self._stored.remove(fields)
        for one in fields:
            self._notes.pop(one, None)

    def _put(self, part: str, note: PartNote) -> None:
        self._notes[self._field(part)] = note  # first: it may be stored though the reply is lost
        self._stored.put({self._field(part): json.dumps(list(asdict(note).values()))})
        self._stored.expire(KEPT_FOR_MS)

    def _field(self, part: str) -> str:
        return f"{part} {self._writer}"


def written_before(acker: Acker, spout: StreamSpout) -> Written:
    """What an earlier start has written, and may not have acked."""
    lives = acker.shards.server_lives()
    notes = [
        note for _, note in Quarantine(acker.shards).readable(spout.written_parts, _note_of) if note.lives == lives
    ]
    failed = {root for note in notes for root in note.failed}
    return Written(sorted(span for note in notes for span in note.spans), failed)


@dataclass(frozen=True)
class WrittenPart:
    """What the run of a part is given to note it in."""

    parts: WrittenParts
    part: str

    def note(self, token: str, lives: list[str], spans: Spans, failed: list[int]) -> None:
        rows = sum(count for _, count in spans)
        self.parts._put(self.part, PartNote(self.parts._batch, rows, token, lives, spans, failed))

    def forget(self) -> None:
        self.parts.forget(self.part)


def _note_of(field: bytes, text: bytes) -> tuple[str, PartNote]:
    match json_of(text):
        case [str(batch), int(rows), str(token), list(lives), list(spans), list(failed)]:
            roots = [one for one in failed if type(one) is int and 0 <= one < 1 << 64]
            note = PartNote(batch, rows, token, lives, [_span_of(one) for one in spans], roots)
            return field.decode(errors="replace"), note
    raise Unreadable("it is not a note of what is written")


def _part_of(field: str) -> str:
    return field.partition(" ")[0]


def _span_of(one: object) -> tuple[int, int]:
    match one:
        case [int(first), int(rows)]:
            return first, rows
    raise Unreadable("it is not a span of roots")
