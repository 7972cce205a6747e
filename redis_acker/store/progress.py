"""How far a Spark run has come: for each partition the rows that are done, and the portion that a task is working on.

A run keeps this in one hash of its spout, so that a second attempt of a task, or the run that follows a dead one,
continues where the first stopped. lua/lib/portion.lua describes a partition's record. In a job with a shuffle, whose
driver completes the messages, each portion has such a record, and its roots are pending until the job ends.

A run may also keep the keys of the messages whose sink has returned, 8 bytes each. By these it can be continued when
its input is split into other partitions.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
from numpy.typing import NDArray

from redis_acker.errors import UnreadableRun
from redis_acker.store.acker import Acker
from redis_acker.store.ids import U64Array, make_roots
from redis_acker.store.run_records import (
    FORMAT,
    SUNK,
    DoneKeys,
    PartitionProgress,
    Place,
    Portion,
    RunAbout,
    field_of,
    sum_of,
)

KEPT_FOR_MS = 7 * 24 * 3600 * 1000
"""A run that is not continued is forgotten after this time."""

_OF_PORTION = ("new", "again", "anew", "late")
"""What follows is about the portion; else about all that is done."""

_NAME, _ABOUT, _PASSES = "name", "about", "passes"

_CLOSED = " closed"
"""After the name of a run whose workers are not to begin anything any more."""

_KEYS_FORMAT = b"format"
"""Field beside the keys of done messages: the version in which they are stored."""

_PORTIONS_AT_ONCE = 10
"""Portions whose keys are read by one command: each may have 80 KB."""

_MOST_ROWS = 1 << 26
"""Rows of one portion: a worker holds them all in memory."""


class RunProgress:
    """The progress of the run of one spout, as its driver, its workers and the command line see it."""

    def __init__(self, acker: Acker, spout: int, name: str = "", *, part: str = "") -> None:
        """spout: its number. name: of the run. part: of a stream that has two runs at once, the name of the second."""
        self._acker, self._spout, self.name, self.part = acker, spout, name, part
        self._hash, self._keys = acker.shards.progress(spout, part), acker.shards.done_keys(spout, part)

    # -- the run as a whole --------------------------------------------------------------------------------------

    def read(self) -> tuple[RunAbout | None, list[PartitionProgress]]:
        """What is stored; from then on this object stands for that run. None if there is no run, and no partitions of
        one in another format. Raises UnreadableRun if something is there that no version has written."""
        about, records = self._read()
        partitions: dict[tuple[int, ...], PartitionProgress] = {}
        for one in records:
            place = one.place[:2]
            rows = one.rows + (partitions[place].rows if place in partitions else 0)
            partitions[place] = replace(one, partition=field_of(*place), rows=rows)
        return about, [partitions[place] for place in sorted(partitions)]

    def held(self) -> list[PartitionProgress]:
        """The portions of a job with a shuffle, by partition and place."""
        return [one for one in self._read()[1] if len(one.place) == 3]

    def pending(self, *, but_sunk: bool = False) -> Iterator[tuple[int, int]]:
        """First block sequence and rows of all roots that are pending, or may be. but_sunk: without those whose sink
        has returned, which may be acked yet."""
        for one in self._read()[1]:
            if one.rows and not (but_sunk and one.stage == SUNK):
                yield one.first, one.rows
            if one.left_rows:
                yield one.left_first, one.left_rows

    def _read(self) -> tuple[RunAbout | None, list[PartitionProgress]]:
        found = {_text_of(name): _text_of(value) for name, value in self._hash.items()}
        self.name, text = found.pop(_NAME, ""), found.pop(_ABOUT, None)
        found.pop(_PASSES, None)
        if text is None:
            return None, []
        try:
            about = RunAbout.read(text)
        except (ValueError, RecursionError):
            raise _unreadable(_ABOUT, text) from None
        if about.format != FORMAT:
            return about, []
        records = []
        for field, value in found.items():
            try:
                records.append(PartitionProgress.read(field, value))
            except ValueError:
                raise _unreadable(field, value) from None
        return about, sorted(records, key=lambda one: one.place)

    def stored_name(self) -> str:
        """The name of the run that is stored; empty if there is none."""
        return (self._hash.get(_NAME) or b"").decode().removesuffix(_CLOSED)

    def start(self, name: str, about: RunAbout, *, keeps_keys: bool = False) -> None:
        """Forgets what is stored, and begins a run."""
        self.drop()
        self.name = name
        if keeps_keys:
            self._keys.put({_KEYS_FORMAT.decode(): str(FORMAT)})
        self._hash.put({_NAME: name, _ABOUT: json.dumps(asdict(about))})
        self.keep()

    def rename(self, name: str) -> None:
        """Gives the run another name. A worker that knows the old one begins nothing any more."""
        self.name = name
        self._hash.put({_NAME: name})

    def close(self) -> str:
        """A worker that is still alive begins and sinks nothing any more. Returns the name of the run."""
        if name := self.stored_name():
            self.rename(f"{name}{_CLOSED}")
        return name

    def keep(self) -> None:
        """Restarts the time after which it is forgotten."""
        self._hash.expire(KEPT_FOR_MS)
        self._keys.expire(KEPT_FOR_MS)

    def drop(self) -> None:
        self._hash.delete()
        self._keys.delete()

    def next_pass(self) -> int:
        """The number of another pass over a part of the input. The first pass over all of it is number 0."""
        return self._hash.increment(_PASSES)

    # -- its portions --------------------------------------------------------------------------------------------

    def begin(self, place: Place, rows: int, sum: int) -> Portion:
        """Begins the portion after a place, or finds how far another attempt has taken it. Ends the portion before."""
        blocks = -(-rows // self._acker.settings.block_size)
        state, rows, sum_text, first, stage, now_ms, *left = self._acker.shards.begin_portion(
            self._spout,
            self.name,
            place.partition,
            place.rows,
            _hex(place.sum),
            rows,
            _hex(sum),
            blocks,
            part=self.part,
        )
        if state in _OF_PORTION and not 0 <= rows <= _MOST_ROWS:
            raise _unreadable(place.partition, f"{rows} rows")
        until_ms = now_ms + self._acker.settings.timeout_ms // 2
        return Portion(state, rows, sum_of(sum_text), first, stage, until_ms, self.roots_of(left[1], left[0]))

    def reach(
        self, place: Place, portion: Portion, stage: int, failed: int = 0, *, kept: DoneKeys | None = None
    ) -> str:
        """Notes that a worker is at the portion, and how far it has come. 'kept'; 'done' if another has ended it;
        'gone' if its roots are others by now, or have to be. kept: what is kept of it from this stage on."""
        where = self._spout, self.name, place.partition, place.rows
        done_keys = kept.pack() if kept else b""
        return self._acker.shards.keep_portion(
            *where, portion.first, stage, failed, done_keys=done_keys, part=self.part
        )

    def leave(self, partition: str) -> U64Array | None:
        """Lets go of the portion in progress. Returns its roots, for the caller to fail, unless they are sunk."""
        if left := self._acker.shards.leave_portion(self._spout, self.name, partition, part=self.part):
            return self.roots_of(left[1], left[0])
        return None

    def settled(self, partition: str) -> None:
        """Forgets what is known of a partition: nothing of it is pending any more."""
        self._hash.remove([partition])

    # -- the keys of what is done ----------------------------------------------------------------------------------

    @property
    def keeps_keys(self) -> bool:
        """Whether the run that is stored keeps the keys of messages that are done."""
        stored = self._keys.get(_KEYS_FORMAT)
        if stored is not None and stored != str(FORMAT).encode():
            raise _unreadable("keys", _text_of(stored))
        return stored is not None

    def done_keys(self) -> Iterator[DoneKeys]:
        """The keys of each portion whose sink has returned."""
        for field, value in self._keys.items(_PORTIONS_AT_ONCE):
            if field != _KEYS_FORMAT:
                yield self._read_keys(_text_of(field), value)

    def done_keys_of(self, first: int) -> DoneKeys | None:
        """The keys of one portion, by its first block sequence."""
        value = self._keys.get(str(first).encode())
        return None if value is None else self._read_keys(str(first), value)

    def _read_keys(self, field: str, value: bytes) -> DoneKeys:
        try:
            return DoneKeys.read(field, value)
        except ValueError:
            raise _unreadable(field, f"{len(value)} bytes of keys") from None

    def keep_keys(self, first: int, keys: NDArray[np.int64]) -> None:
        """Keeps keys of messages that somebody else deals with, under a block sequence that no portion has: to this
        run they are done."""
        self._keys.put({str(first): DoneKeys(first, len(keys), keys).pack()})

    def forget_keys(self, first: int) -> None:
        """Forgets that a portion is done."""
        self._keys.remove([str(first)])

    def roots_of(self, first: int, rows: int) -> U64Array:
        if not 0 <= rows <= _MOST_ROWS:
            raise _unreadable("rows", str(rows))
        return make_roots(self._spout, first, rows, self._acker.settings.block_size)


def spouts_with_runs(acker: Acker, only: str | None = None) -> dict[str, int]:
    """Name and number of the spouts, or of one, that have a run in progress or one that died."""
    spouts = acker.known_spouts(only)
    found = acker.shards.have_progress(spouts.values())
    return {name: number for (name, number), exists in zip(spouts.items(), found, strict=True) if exists}


def _text_of(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _unreadable(field: str, text: str) -> UnreadableRun:
    return UnreadableRun(
        f"The progress of a run has a field {reprlib.repr(field)} with {reprlib.repr(text)}, which this version "
        "cannot read: `redis-acker runs drop` drops it, and the next run starts from the beginning."
    )


def _hex(value: int) -> str:
    return f"{value:016x}"
