"""The tracking column, and what a Python worker does with it: find the roots of a row, and fail them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from redis_acker import Acker, FailedTuple
from redis_acker.acker import MAX_ERROR_BYTES
from redis_acker.ids import U64Array, roots_at
from redis_acker.keys import ShardKeys
from redis_acker.transport import Command
from spark_integration.workers import StoreAddress

COLUMN = "__acker"
"""The hidden column. It holds the key of the message a row comes from, or an array of keys if it comes from several. A
key is a 64-bit hash of the message id: the same however often and wherever Spark computes the row."""

NOTES_EXPIRE_MS = 24 * 3600 * 1000
"""A job that dies leaves its notes behind for this long."""

_AT_ONCE = 1000
"""Rows noted by one command."""

Keys = NDArray[np.int64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class RootTable:
    """The roots of one source: message keys in ascending order, whose places are the places of their roots."""

    keys: Keys
    spout: int
    first_sequence: int
    block_size: int
    notes = ""

    def find(self, keys: Keys) -> tuple[U64Array, Places]:
        places, found = find_places(self.keys, keys)
        return roots_at(self.spout, self.first_sequence, places, self.block_size), found


def find_places(sorted_keys: Keys, keys: Keys) -> tuple[Places, Places]:
    """Where among sorted keys others are: their places there, and which of the others these are."""
    if not len(sorted_keys):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    places = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    found = np.flatnonzero(sorted_keys[places] == keys)
    return places[found], found


def deltas_of(sorted_keys: Keys, keys: Keys, deltas: Keys) -> U64Array:
    """For each of the sorted keys what is given for it, or 0."""
    found = np.zeros(len(sorted_keys), dtype=np.uint64)
    places, which = find_places(sorted_keys, keys)
    found[places] = deltas.view(np.uint64)[which]
    return found


class Table(Protocol):
    """Finds the roots of rows by their keys."""

    @property
    def notes(self) -> str:
        """Where failed rows are to be noted beside; empty: their roots' failures are enough."""

    def find(self, keys: Keys) -> tuple[U64Array, Places]:
        """Roots, and for each of them the place of its key."""


class Value(Protocol):
    """A broadcast variable, or what stands for one where there is none."""

    @property
    def value(self) -> list[Table]: ...


@dataclass(frozen=True)
class Inline:
    """Tables inside of the closure, for Spark Connect, which has no broadcast variables."""

    value: list[Table]


@dataclass(frozen=True)
class Cause:
    """Why rows of a batch failed."""

    error: str
    fatal: bool = False

    @classmethod
    def of(cls, error: BaseException) -> Cause:
        if isinstance(error, FailedTuple):
            return cls(str(error), error.fatal)
        try:
            return cls(f"{type(error).__name__}: {error}")
        except Exception:  # its own __str__ is broken
            return cls(type(error).__name__)


Failed = Mapping[Cause, Sequence[Keys]]
"""The keys of rows that failed, by cause."""


@dataclass(frozen=True)
class Tracking:
    """What the Python steps of a run carry with them."""

    store: StoreAddress
    run: str
    tables: Value
    is_replay: bool = False
    """Whether only messages are brought that have failed before."""

    def connect(self) -> None:
        """Opens the connection of this worker, so that a store out of reach is noticed before anything failed."""
        self.store.acker()

    def fail(self, step: str, failed: Failed) -> None:
        """Fails the roots behind these keys at once. Doing it again changes nothing."""
        fail_keys(self.store.acker(), self.run, self.tables.value, step, failed)


class FailedRows:
    """Rows that failed, noted for the driver: those behind an aggregation, of which it has to find the messages by the
    key of their group, and those of other applications' messages."""

    def __init__(self, acker: Acker, name: str) -> None:
        self._transport = acker.transport
        keys: ShardKeys = acker.shard_keys[0]
        self._key = keys.failed_rows(name)

    def add(self, keys: Keys, step: str, cause: Cause) -> None:
        text = json.dumps([step, cause.error[:MAX_ERROR_BYTES], cause.fatal])
        for start in range(0, len(keys), _AT_ONCE):
            pairs = [part for key in keys[start : start + _AT_ONCE].tolist() for part in (str(key), text)]
            self._transport.run_one(Command(0, ("HSET", self._key, *pairs)))
        self._transport.run_one(Command(0, ("PEXPIRE", self._key, NOTES_EXPIRE_MS)))

    def read(self) -> dict[tuple[str, Cause], list[int]]:
        """The keys, by step and cause."""
        flat: list[bytes] = self._transport.run_one(Command(0, ("HGETALL", self._key)))
        found: dict[tuple[str, Cause], list[int]] = {}
        for key, text in zip(flat[::2], flat[1::2], strict=True):
            step, error, fatal = json.loads(text)
            found.setdefault((step, Cause(error, fatal)), []).append(int(key))
        return found

    def count(self) -> int:
        return int(self._transport.run_one(Command(0, ("HLEN", self._key))))

    def forget(self) -> None:
        self._transport.run_one(Command(0, ("DEL", self._key)))


def keys_in(cells: pa.Array) -> Keys:
    """The keys in a part of the tracking column."""
    flat = cells.flatten() if pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type) else cells
    keys: Keys = flat.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return keys


def fail_keys(acker: Acker, run: str, tables: Sequence[Table], step: str, failed: Failed) -> None:
    """Fails the roots behind some keys. A key without root is that of a group."""
    for cause, some in failed.items():
        keys = np.unique(np.concatenate(some))
        for table in tables:
            roots, found = table.find(keys)
            if len(roots):
                acker.fail(roots, component=step, error=cause.error, fatal=cause.fatal)
                if table.notes:
                    FailedRows(acker, f"{run}:{table.notes}").add(np.unique(keys[found]), step, cause)
            keys = np.delete(keys, found)
        if len(keys):
            FailedRows(acker, run).add(keys, step, cause)
