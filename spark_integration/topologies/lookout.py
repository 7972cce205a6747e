"""What the driver knows of the tuples in the hands of bolts, from the notes of their tasks."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from redis_acker.errors import AckerError, escaped
from redis_acker.store.acker import Acker
from redis_acker.store.ids import U64Array
from redis_acker.store.streams import Cause
from spark_integration.topologies.notes import Note, Notes

CAUSES_KEPT = 10_000
"""Of so many roots that were given up the lookout remembers why."""

log = logging.getLogger(__name__)


class Lookout:
    """Threads may share it."""

    def __init__(self, acker: Acker, run: str) -> None:
        self._acker, self._notes = acker, Notes(acker, run)
        self._given_up: dict[str, Note] = {}
        """Of the micro-batch in work, by key."""
        self._causes: dict[int, Cause] = {}
        """Why roots were given up."""

    def begin(self) -> None:
        """A micro-batch begins."""
        self._given_up = {}

    def end(self) -> None:
        """A micro-batch has ended, and the notes of its tasks are of no use any more."""
        self._read()
        self._notes.clear()

    def given_up(self) -> int:
        """How many tuples of this micro-batch have been given up."""
        self._read()
        return len(self._given_up)

    def given_up_together(self) -> list[tuple[str, int]]:
        """What was given up in this micro-batch: the bolts, and how many messages each had at once."""
        return [(note.component, len(note.roots)) for note in self._given_up.values()]

    def held_roots(self) -> U64Array:
        """Roots that a bolt has had in its hands for so long that they are not to be kept alive."""
        try:
            held = {root for note in self._read().values() if note.state != "begun" for root in note.roots}
        except AckerError as error:
            log.warning("It is not known which tuples bolts have in their hands: %s", error)
            held = set()
        return np.array(sorted(held), dtype=np.uint64)

    def causes(self, roots: Collection[int]) -> dict[int, Cause]:
        """Which bolt has or had which of these roots in its hands, and for how long."""
        found = dict[int, Cause]()
        # Of several bolts that have a root, the one that has had it for longest stays, and one that was given up.
        for note in sorted(self._read().values(), key=lambda note: note.at_ms, reverse=True):
            if note.state == "long":
                found.update((root, note.cause()) for root in note.roots if root in roots)
        found.update((root, self._causes[root]) for root in roots if root in self._causes)
        return found

    def longest(self) -> str:
        """What takes longest now, in words; empty if nothing takes long."""
        try:
            notes = [note for note in self._read().values() if note.state == "long"]
        except AckerError:
            return ""
        return min(notes, key=lambda note: note.at_ms).cause().error if notes else ""

    def forget_hands(self) -> None:
        """Forgets what the tasks of a job that has ended were at."""
        self._notes.remove(place for place, note in self._read().items() if note.state != "given up")

    def give_up_hands(self, error: str) -> None:
        """Gives up what the tasks of a job that has failed were at, and fails its roots."""
        for place, note in self._read().items():
            if note.state == "given up" or note.key in self._given_up:
                continue
            if note.roots:
                self._acker.fail(note.roots, component=note.component, error=error)
            self._notes.put(place, replace(note, state="given up"))
            self._given_up[note.key] = note
            log.error(
                "A worker died while bolt %s worked on %s, which is left out now.", note.component, escaped(note.what)
            )

    def _read(self) -> dict[str, Note]:
        notes = self._notes.read()
        for note in notes.values():
            if note.state == "given up" and note.key not in self._given_up:
                self._given_up[note.key] = note
                cause = note.cause()
                self._causes.update(dict.fromkeys(note.roots, cause))
                self._causes = dict(list(self._causes.items())[-CAUSES_KEPT:])
                what, why = escaped(note.what), escaped(cause.error)
                log.error("Bolt %s hangs on %s: %s. Its task goes on without it.", note.component, what, why)
        return notes
