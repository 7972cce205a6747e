"""The rows that Spark gives a task: taken in portions, with their keys and ids, and a checksum that recognises them."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from redis_acker.errors import StoreLost
from redis_acker.store.ids import Token, U64Array, blocks_of
from redis_acker.store.message_ids import MessageIds, TextIds
from redis_acker.store.run_records import Place, Portion
from spark_integration.errors import OtherRows, RunReplaced
from spark_integration.runs.tracking import COLUMN, Keys

PORTION_S = 1.0
"""How long a portion should take: at most this much work is repeated when a worker dies."""

FIRST_ROWS = 32
"""Rows of a worker's first portion, as long as it is not known how long a row takes."""

_MASK = (1 << 64) - 1
_ODD = np.uint64(0x9E3779B97F4A7C15)

_seconds_a_row: dict[str, float] = {}
"""By pace, as measured in this worker."""


class PortionInput:
    """The rows that Spark gives a task, taken in portions of any size."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._read: list[pa.RecordBatch] = []

    def rows_at_hand(self) -> int:
        """How many rows are here; reads more if there are none. 0 at the end."""
        while not self._read or not self._read[0].num_rows:
            self._read = self._read[1:]
            if not self._read and not self._read_on():
                return 0
        return int(self._read[0].num_rows)

    def peek(self, rows: int) -> pa.RecordBatch:
        """The next rows, without dropping them; fewer at the end."""
        while sum(batch.num_rows for batch in self._read) < rows and self._read_on():
            pass
        if len(self._read) == 1 or self._read[0].num_rows >= rows:
            return self._read[0].slice(0, rows)
        table = pa.Table.from_batches(self._read).slice(0, rows).combine_chunks()
        return table.to_batches()[0]

    def drop(self, rows: int) -> None:
        while rows and rows >= self._read[0].num_rows:
            rows -= self._read.pop(0).num_rows
        if rows:
            self._read[0] = self._read[0].slice(rows)

    def _read_on(self) -> bool:
        batch = next(self._batches, None)
        if batch is not None:
            self._read.append(batch)
        return batch is not None


class Pace:
    """How long a row takes, so that portions take about PORTION_S. Tasks that have it under one name, in one worker,
    learn it together."""

    def __init__(self, name: str) -> None:
        self._name = name

    def portion_rows(self, at_hand: int) -> int:
        if (row_s := _seconds_a_row.get(self._name)) is None:
            return min(FIRST_ROWS, at_hand)
        return max(1, min(at_hand, int(PORTION_S / row_s)))

    @contextmanager
    def measuring(self, rows: int) -> Iterator[None]:
        """Inside it some rows are worked on."""
        begin_s = time.monotonic()
        yield
        row_s = max(time.monotonic() - begin_s, 1e-9) / rows
        _seconds_a_row[self._name] = (_seconds_a_row.get(self._name, row_s) + row_s) / 2


# -- columns of their rows -------------------------------------------------------------------------------------------


def field_in(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A field of the tracking column, if it is a struct and has it."""
    column = batch.column(COLUMN)
    if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
        return None
    return column.field(name)


def keys_of(batch: pa.RecordBatch) -> Keys:
    found = field_in(batch, "key")
    keys: Keys = (batch.column(COLUMN) if found is None else found).to_numpy()
    return keys


def edges_of(keys: Keys) -> U64Array:
    """The edge of a message is its key: rows that changed places cannot complete each other's roots."""
    edges = keys.view(np.uint64)
    return np.where(edges == 0, np.uint64(1), edges)


def wide(ids: Any) -> Any:
    """Ids in the widest type of their kind: those of an earlier run may be longer, and all of them may exceed 2 GB."""
    if pa.types.is_integer(ids.type):
        return ids.cast(pa.int64())
    return ids.cast(pa.large_string() if is_text(ids.type) else pa.large_binary())


def is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def message_ids_of(ids: Any) -> MessageIds:
    """An Arrow array of ids as the store takes them."""
    ids = wide(ids)
    if pa.types.is_integer(ids.type):
        integers: MessageIds = ids.to_numpy()
        return integers
    _, ends, data = ids.buffers()
    offsets = np.frombuffer(ends, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
    return TextIds(offsets, memoryview(data) if data else memoryview(b""), text=is_text(ids.type))


# -- recognising them ------------------------------------------------------------------------------------------------


def token_of(run: str, partition: str, rows: int) -> Token:
    """Under which the portion that follows some rows of a partition is acked."""
    return Token.of(f"{run} {partition} {rows}")


def own_edges(roots: U64Array) -> U64Array:
    """The edge of each root, made of its block: whoever knows which roots there are can ack them. Roots of a block have
    theirs in common, so that the store keeps one."""
    mixed = blocks_of(roots) * _ODD
    mixed ^= mixed >> np.uint64(32)
    return np.where(mixed == 0, np.uint64(1), mixed)


def sum_after(place: Place, batch: pa.RecordBatch) -> int:
    """A checksum of all rows so far that depends on their order, which an XOR would not."""
    odd = 2 * np.arange(place.rows, place.rows + batch.num_rows, dtype=np.uint64) + np.uint64(1)
    return (place.sum + int((keys_of(batch).view(np.uint64) * odd).sum(dtype=np.uint64))) & _MASK


def id_sum_after(place: Place, ids: pa.Array) -> int:
    """The same made of message ids, where their keys are not at hand: two checksums of 32 bits, of their bytes and of
    how long each is, or of numbers in two ways."""
    if pa.types.is_integer(ids.type):
        values = pc.fill_null(ids.cast(pa.int64()), 0).to_numpy().view(np.uint64)
        first, second = values.tobytes(), (values * _ODD).tobytes()
    else:
        _, offsets, data = ids.buffers()
        is_large = pa.types.is_large_string(ids.type) or pa.types.is_large_binary(ids.type)
        ends = np.frombuffer(offsets, dtype=np.int64 if is_large else np.int32)[ids.offset : ids.offset + len(ids) + 1]
        first, second = memoryview(data or b"")[ends[0] : ends[-1]], np.diff(ends).tobytes()
    return zlib.crc32(second, place.sum >> 32) << 32 | zlib.crc32(first, place.sum & 0xFFFFFFFF)


def check_portion(portion: Portion, partition: int, rows: int) -> Portion:
    """Raises the error that stands for a portion which a task cannot work on. rows: those that it is past."""
    if portion.state == "gone":
        raise RunReplaced("This task belongs to a run that is over: another has taken its place, or it was dropped.")
    if portion.state == "lost":
        raise StoreLost(
            f"The store has lost progress of partition {partition}: it knows of {portion.rows:,} finished rows, and "
            f"this task has finished {rows:,}. Spark tries the task again from there."
        )
    if portion.state == "other":
        raise other_rows(partition, rows)
    return portion


def other_rows(partition: int, rows: int) -> OtherRows:
    return OtherRows(
        f"Partition {partition} has different rows after row {rows:,} than at the first reading, so it is not known "
        "which of them are done: store the frame before you track it (checkpoint(), a table or stable_source=False), "
        "or start from the beginning with resume=False."
    )
