"""What is stored of a Spark run: of it as a whole, of each of its partitions, and of portions that are done."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from redis_acker.store.ids import U64Array

BEGUN, PENDING, SUNK = 0, 1, 2
"""Stages of a portion: allocated; its roots are pending; its sink has returned."""

_ENDED = 3
"""Stage of a partition without a portion, once a task has come to its end."""

FORMAT = 1
"""The version of what is stored. A run stored in another format is not continued."""

PortionState = Literal["new", "again", "anew", "late", "done", "other", "lost", "gone"]
"""What a task that begins a portion is told. new: it is the first to ask. again, anew: another attempt had it; the
roots are the same, or new ones. late: its sink has returned, but its roots may be over and forgotten by now. done: rows
from here on are done, up to a place that follows. other: the rows are not those that were there before. lost: the store
has forgotten rows that the task has done. gone: the run is over."""

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
        found = cls(partition, *counts, *now, sum_of(sum), *left)
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


def field_of(pass_number: int, partition: int, offset: int | None = None) -> str:
    """The name of a partition in one pass over the input, or of the portion that is held after some of its rows."""
    return f"{pass_number}:{partition}" if offset is None else f"{pass_number}:{partition}:{offset}"


def sum_of(text: str) -> int:
    """A checksum as it is stored."""
    return int(text.replace("-", "0") or "0", 16)
