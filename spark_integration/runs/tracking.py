"""The tracking column, and what a Python worker does with it: find the roots of a row, and fail them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from redis_acker import Acker
from redis_acker.store.acker import MAX_ERROR_BYTES
from redis_acker.store.ids import U64Array, roots_at
from redis_acker.store.streams import Cause
from spark_integration.errors import BadFrame
from spark_integration.workers import StoreAddress, is_connect

COLUMN = "__acker"
"""The hidden column. It holds the key of the message a row comes from, or an array of keys if it comes from several. A
key is a 64-bit hash of the message id: the same however often and wherever Spark computes the row."""

MAX_INLINE = 4_000_000
"""Most messages of a run over Spark Connect, whose closures carry 8 bytes for each."""

MOST_TRACED = 100
"""How many deliveries, failed messages, and messages that are handed over, a run traces one by one."""

NOTES_EXPIRE_MS = 24 * 3600 * 1000
"""A job that dies leaves its notes behind for this long."""

Keys = NDArray[np.int64]
Places = NDArray[np.int64]
"""Positions of rows or keys among others."""

Failed = Mapping[Cause, Sequence[Keys]]
"""The keys of rows that failed, by cause."""


class KeyTable(Protocol):
    """Finds the roots of rows by their keys; one for each input of a run."""

    @property
    def keys(self) -> Keys:
        """In ascending order."""

    @property
    def notes(self) -> str:
        """Where to note failed rows as well; empty if the failures of their roots say enough."""

    def find(self, keys: Keys) -> tuple[U64Array, Places]:
        """Roots, and for each of them the place of its key."""


class TracedDelivery(NamedTuple):
    """A delivery that came with the context of a trace."""

    key: int
    roots: list[int]
    trace: bytes


class KeyTables(Protocol):
    """The tables of a run: a broadcast variable, or InlineTables."""

    @property
    def value(self) -> list[KeyTable]: ...


@dataclass(frozen=True)
class InlineTables:
    """Tables that travel in the closure, for Spark Connect, which has no broadcast variables."""

    value: list[KeyTable]


def check_size(spark: SparkSession, messages: int) -> None:
    """Raises BadFrame if the tables of a run cannot be sent to workers."""
    if is_connect(spark) and messages > MAX_INLINE:
        raise BadFrame(
            f"A run over Spark Connect tracks at most {MAX_INLINE:,} messages, and these are {messages:,}: split the "
            "frame, or run the job in a Spark session that is not remote."
        )


def send_tables(spark: SparkSession, tables: list[KeyTable]) -> KeyTables:
    if is_connect(spark):
        return InlineTables(tables)
    broadcast: KeyTables = spark.sparkContext.broadcast(tables)
    return broadcast


@dataclass(frozen=True)
class MessageTable:
    """The roots of messages: keys in ascending order, each at the place of its root."""

    keys: Keys
    spout: int
    first_sequence: int
    block_size: int
    notes = ""

    def find(self, keys: Keys) -> tuple[U64Array, Places]:
        places, found = find_places(self.keys, keys)
        return roots_at(self.spout, self.first_sequence, places, self.block_size), found


@dataclass(frozen=True)
class DeliveryTable:
    """The roots of deliveries: keys in ascending order, each with the end of its roots among all of them."""

    keys: Keys
    ends: Places
    roots: U64Array
    notes = "deliveries"

    def find(self, keys: Keys) -> tuple[U64Array, Places]:
        places, found = find_places(self.keys, keys)
        starts = np.concatenate((np.zeros(1, dtype=np.int64), self.ends))
        parts = [np.arange(starts[place], starts[place + 1]) for place in places.tolist()]
        which = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        return self.roots[which], np.repeat(found, [len(part) for part in parts])


def find_places(sorted_keys: Keys, keys: Keys) -> tuple[Places, Places]:
    """Looks keys up among sorted ones: the places of those that are there, and which of the keys these are."""
    if not len(sorted_keys):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    places = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    found = np.flatnonzero(sorted_keys[places] == keys)
    return places[found], found


def edges_for(sorted_keys: Keys, keys: Keys, edges: Keys) -> U64Array:
    """For each of the sorted keys the edges given for it, or 0."""
    found = np.zeros(len(sorted_keys), dtype=np.uint64)
    places, which = find_places(sorted_keys, keys)
    found[places] = edges.view(np.uint64)[which]
    return found


def keys_in(cells: pa.Array) -> Keys:
    """The keys in a part of the tracking column."""
    flat = cells.flatten() if pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type) else cells
    keys: Keys = flat.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return keys


@dataclass(frozen=True)
class Tracking:
    """What the Python steps of a run carry with them."""

    store: StoreAddress
    run: str
    tables: KeyTables
    is_replay: bool = False
    """Whether all rows are of messages that have failed before."""

    @classmethod
    def of(cls, acker: Acker, run: str, tables: KeyTables, *, is_replay: bool) -> Tracking:
        return cls(StoreAddress.of(acker), run, tables, is_replay)

    def connect(self) -> None:
        """Opens this worker's connection, so that a store out of reach is noticed before any row fails."""
        self.store.acker()

    def fail(self, failed: Failed) -> None:
        """Fails the roots behind these keys at once. Doing it again changes nothing."""
        fail_keys(self.store.acker(), self.run, self.tables.value, failed)


class NotedRows:
    """Failed rows that workers note for the driver: rows after an aggregation, whose messages it has to find by the
    key of the group, and rows of other applications' messages."""

    def __init__(self, acker: Acker, name: str) -> None:
        self._rows = acker.shards.failed_rows(name)

    def add(self, keys: Keys, cause: Cause) -> None:
        text = json.dumps([cause.component, cause.error[:MAX_ERROR_BYTES], cause.fatal])
        self._rows.put({str(key): text for key in keys.tolist()})
        self._rows.expire(NOTES_EXPIRE_MS)

    def read(self) -> dict[Cause, list[int]]:
        """The keys, by cause."""
        found: dict[Cause, list[int]] = {}
        for key, text in dict(self._rows.items()).items():
            found.setdefault(Cause(*json.loads(text)), []).append(int(key))
        return found

    def __len__(self) -> int:
        return len(self._rows)

    def delete(self) -> None:
        self._rows.delete()


def fail_keys(acker: Acker, run: str, tables: Sequence[KeyTable], failed: Failed) -> None:
    """Fails the roots behind some keys. A key without a root is that of a group."""
    for cause, some in failed.items():
        keys = np.unique(np.concatenate(some))
        for table in tables:
            roots, found = table.find(keys)
            if len(roots):
                acker.fail(roots, component=cause.component, error=cause.error, fatal=cause.fatal)
                if table.notes:
                    NotedRows(acker, f"{run}:{table.notes}").add(np.unique(keys[found]), cause)
            keys = np.delete(keys, found)
        if len(keys):
            NotedRows(acker, run).add(keys, cause)
