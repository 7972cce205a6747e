"""The tracking column, and what a Python worker does with it: find the roots of a row, and fail them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from redis_acker.store.ids import U64Array
from redis_acker.store.streams import Cause
from spark_integration.errors import BadFrame
from spark_integration.workers import is_connect

COLUMN = "__acker"
"""The hidden column. It holds the key of the message a row comes from, or an array of keys if it comes from several. A
key is a 64-bit hash of the message id: the same however often and wherever Spark computes the row."""

ID = "id"
"""The column of message ids where there are no others than it and the hidden one."""

MAX_INLINE = 4_000_000
"""Most messages of to_df(), and rows with anchors in a job with a shuffle, over Spark Connect, whose closures carry 8
bytes for each."""

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
    """Finds the roots of rows by their keys."""

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
    """Tables that travel in the closure: for Spark Connect, which has no broadcast variables, or if there are none."""

    value: list[KeyTable]


def check_size(spark: SparkSession, rows: int) -> None:
    """Raises BadFrame if the table of an input cannot be sent to workers."""
    if is_connect(spark) and rows > MAX_INLINE:
        raise BadFrame(
            f"Over Spark Connect to_df(), and track(anchors=) with a shuffle, take at most {MAX_INLINE:,} rows, and "
            f"these are {rows:,}: split the frame, or run the job in a Spark session that is not remote."
        )


def send_tables(spark: SparkSession, tables: list[KeyTable]) -> KeyTables:
    if is_connect(spark) or not tables:
        return InlineTables(tables)
    broadcast: KeyTables = spark.sparkContext.broadcast(tables)
    return broadcast


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
