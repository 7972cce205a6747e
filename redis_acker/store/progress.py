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
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from redis_acker.errors import UnreadableRun
from redis_acker.store.acker import Acker
from redis_acker.store.ids import U64Array, make_roots

BEGUN, PENDING, SUNK = 0, 1, 2
"""Stages of a portion: allocated; its roots are pending; its sink has returned."""

_ENDED = 3
"""Stage of a partition without a portion, once a task has come to its end."""

KEPT_FOR_MS = 7 * 24 * 3600 * 1000
"""A run that is not continued is forgotten after this time."""

FORMAT = 1
"""The version of what is stored. A run stored in another format is not continued."""

PortionState = Literal["new", "again", "anew", "late", "done", "other", "lost", "gone"]
"""What a task that begins a portion is told. new: it is the first to ask. again, anew: another attempt had it; the
roots are the same, or new ones. late: its sink has returned, but its roots may be over and forgotten by now. done: rows
from here on are done, up to a place that follows. other: the rows are not those that were there before. lost: the store
has forgotten rows that the task has done. gone: the run is over."""

_OF_PORTION = ("new", "again", "anew", "late")
"""What follows is about the portion; else about all that is done."""

_NAME, _ABOUT, _PASSES = "name", "about", "passes"

_KEYS_FORMAT = b"format"
"""Field beside the keys of done messages: the version in which they are stored."""

_PORTIONS_AT_ONCE = 10
"""Portions whose keys are read by one command: each may have 80 KB."""

_MOST_ROWS = 1 << 26
"""Rows of one portion: a worker holds them all in memory."""

_MOST = 253_402_300_799_999
"""Greater than any count or sequence number; as a time, the end of the year 9999."""


@dataclass(frozen=True)
class RunAbout:
    """What is known of a run as a whole."""

    spout: str
    started_ms: int
    where: str
    """Host and process of the driver that began it."""
    partitions: int
    """Of its input; 0 if that is not known beforehand."""
    input: str
    """Fingerprint of the input and of how it is split into partitions; empty if it has none."""
    steps: str
    """Fingerprint of the steps and the sink."""
    format: int = FORMAT

    @classmethod
    def read(cls, text: str) -> RunAbout:
        """Raises ValueError if it is no such text. In another format only the number of the format can be relied on."""
        data = json.loads(text)
        if not isinstance(data, dict) or type(data.get("format")) is not int:
            raise ValueError(text)
        empty = cls("", 0, "", 0, "", "", data["format"])
        values: dict[str, Any] = {name: data.get(name) for name in asdict(empty)}
        if all(type(values[name]) is type(value) for name, value in asdict(empty).items()):
            found = cls(**values)
            if 0 <= found.started_ms <= _MOST and 0 <= found.partitions <= _MOST:
                return found
        if empty.format == FORMAT:
            raise ValueError(text)
        return empty


@dataclass(frozen=True)
class Place:
    """A place in the rows of one partition."""

    partition: str
    """The pass and the partition."""
    rows: int
    sum: int
    """Checksum of the rows before it, in their order."""


@dataclass(frozen=True)
class Portion:
    """What the store says about the next portion of a partition."""

    state: PortionState
    rows: int
    sum: int
    first: int
    stage: int
    until_ms: int
    """An init of its roots that comes later than this is refused."""
    left: U64Array
    """Roots that it had before, and that are to be failed: nobody will complete them."""


@dataclass(frozen=True)
class PartitionProgress:
    """One partition of a run; or one portion of it, if its roots are held until the job ends."""

    partition: str
    done: int
    failed: int
    """Of those that are done."""
    rows: int
    """Of the portion in progress; 0 if there is none."""
    first: int
    """Its first block sequence."""
    stage: int
    touched_ms: int
    """When a worker was last at it; 0 if it had no rows."""
    now_failed: int
    """How many rows of the portion have failed."""
    sum: int
    """Checksum of the rows up to its end."""
    left_rows: int
    """Of the roots that the portion had before, if they may be pending yet."""
    left_first: int

    @classmethod
    def read(cls, partition: str, text: str) -> PartitionProgress:
        """Raises ValueError if it is not the record of a partition."""
        done, _, failed, rows, sum, first, stage, touched_ms, now_failed, left_rows, left_first = text.split()
        counts = int(done), int(failed), int(rows)
        now = int(first), int(stage), int(touched_ms), int(now_failed)
        left = int(left_rows), int(left_first)
        found = cls(partition, *counts, *now, _sum_of(sum), *left)
        if len(found.place) not in (2, 3) or not all(0 <= number <= _MOST for number in (*counts, *now, *left)):
            raise ValueError(text)
        return found

    @property
    def place(self) -> tuple[int, ...]:
        """The number of the pass, and that of the partition; of a held portion also the rows before it."""
        return tuple(map(int, self.partition.split(":")))

    @property
    def has_ended(self) -> bool:
        """Whether a task has come to its end."""
        return self.stage == _ENDED


@dataclass(frozen=True)
class DoneKeys:
    """A portion whose sink has returned."""

    first: int
    """Its first block sequence."""
    failed: int
    """How many of its messages failed."""
    keys: NDArray[np.int64]
    """Of all its messages, in the order of its rows."""
    ack_vals: U64Array | None = None
    """What is to be acked of them, 0 where they failed; None if that is the edges that are made of their keys."""

    def pack(self) -> bytes:
        columns = [self.keys.astype("<i8"), *([] if self.ack_vals is None else [self.ack_vals.astype("<u8")])]
        counts = np.array([self.failed, len(columns)], dtype="<u4")
        return b"".join(one.tobytes() for one in (counts, *columns))

    @classmethod
    def read(cls, field: str, value: bytes) -> DoneKeys:
        """Raises ValueError if it is no such value."""
        failed, columns = np.frombuffer(value[:8], dtype="<u4").tolist()
        if columns not in (1, 2):
            raise ValueError(field)
        keys, *rest = np.frombuffer(value[8:], dtype="<i8").reshape(columns, -1)
        ack_vals = rest[0].astype(np.int64).view(np.uint64) if rest else None
        return cls(int(field), failed, keys.astype(np.int64), ack_vals)


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

    def pending(self) -> Iterator[tuple[int, int]]:
        """First block sequence and rows of all roots that are pending, or may be."""
        for one in self._read()[1]:
            if one.rows:
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
        except ValueError:
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
        return (self._hash.get(_NAME) or b"").decode()

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
        return Portion(state, rows, _sum_of(sum_text), first, stage, until_ms, self.roots_of(left[1], left[0]))

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


def field_of(pass_number: int, partition: int, offset: int | None = None) -> str:
    """The name of a partition in one pass over the input, or of the portion that is held after some of its rows."""
    return f"{pass_number}:{partition}" if offset is None else f"{pass_number}:{partition}:{offset}"


def _text_of(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _unreadable(field: str, text: str) -> UnreadableRun:
    return UnreadableRun(
        f"The progress of a run has a field {reprlib.repr(field)} with {reprlib.repr(text)}, which this version "
        "cannot read: `redis-acker runs drop` drops it, and the next run starts from the beginning."
    )


def _sum_of(text: str) -> int:
    return int(text.replace("-", "0") or "0", 16)


def _hex(value: int) -> str:
    return f"{value:016x}"
