"""Rows that another application handed over, each with its anchors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from redis_acker.store.edges import EdgeState, child_edges
from redis_acker.store.ids import U64Array
from redis_acker.store.packed import ANCHOR_BYTES, pack_anchor_arrays, split_anchors, unpack_anchor_arrays
from spark_integration.errors import BadFrame
from spark_integration.runs.tracking import COLUMN, Places


@dataclass(frozen=True)
class Deliveries:
    """A frame whose rows carry anchors. The key of a row is a hash of them, since edges name one delivery only."""

    frame: DataFrame
    anchors: str
    """The column that holds them."""
    job: str
    """What this job is called; its messages are those of other programs' spouts."""

    @property
    def name(self) -> str:
        return self.job

    def key(self) -> Column:
        return F.xxhash64(F.col(f"`{self.anchors}`"))

    def with_keys(self) -> DataFrame:
        return self.frame.withColumn(COLUMN, self.key()).drop(self.anchors)

    def with_books(self, *, has_id_column: bool) -> DataFrame:
        """The frame as tasks that keep the books get it: the tracking column is a struct with the anchors."""
        anchors = F.struct(F.col(f"`{self.anchors}`").alias("anchors"))
        return self.frame.withColumn(COLUMN, anchors).drop(self.anchors)


@dataclass(frozen=True)
class Received:
    """The anchors of some rows, one after the other."""

    ends: Places
    """For each row, where its anchors end among all of them."""
    roots: U64Array
    edges: U64Array
    traces: dict[int, bytes]
    """The contexts of traces, by row."""

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray, name: str) -> Received:
        """name: of the column, for people."""
        if column.null_count:
            raise BadFrame(
                f"{column.null_count:,} of {len(column):,} rows have no anchors in column {name!r}: leave them out "
                "with where(), or work on them in a frame of their own that is not tracked."
            )
        split = [split_anchors(one) for one in column.to_pylist()]
        packed = [one for one, _ in split]
        if wrong := [one for one in packed if not one or len(one) % ANCHOR_BYTES]:
            raise BadFrame(
                f"Anchors are a multiple of {ANCHOR_BYTES} bytes, and {wrong[0]!r} in column {name!r} is not: use the "
                "bytes that to_df() or Anchors.to_bytes() gave."
            )
        ends = np.cumsum([len(one) // ANCHOR_BYTES for one in packed], dtype=np.int64)
        traces = {row: trace for row, (_, trace) in enumerate(split) if trace}
        return cls(ends, *unpack_anchor_arrays(b"".join(packed)), traces)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> Places:
        return np.concatenate((np.zeros(1, dtype=np.int64), self.ends[:-1])) if len(self) else self.ends

    def rows_of_anchors(self) -> Places:
        """For each anchor the row that has it."""
        return np.repeat(np.arange(len(self)), self.ends - self.starts)

    def anchors_of(self, rows: Places) -> Places:
        """The positions of the anchors of some rows, row by row."""
        counts = (self.ends - self.starts)[rows]
        first = np.repeat(self.starts[rows] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        return first + np.arange(len(first))

    def take(self, rows: Places) -> Received:
        which = self.anchors_of(rows)
        ends = np.cumsum((self.ends - self.starts)[rows])
        traces = {place: self.traces[row] for place, row in enumerate(rows.tolist()) if row in self.traces}
        return Received(ends, self.roots[which], self.edges[which], traces)

    def roots_of(self, row: int) -> list[int]:
        found: list[int] = self.roots[self.starts[row] : self.ends[row]].tolist()
        return found

    def to_do(self, states: NDArray[np.uint8]) -> tuple[Places, Places]:
        """The rows that are to be worked on, and those that were, but are not acked for all of their roots. Of a row
        that is here twice only the first counts."""
        rows = self.rows_of_anchors()
        is_open, is_acked = np.zeros(len(self), dtype=bool), np.zeros(len(self), dtype=bool)
        is_open[rows[states == EdgeState.OPEN]] = True
        is_acked[rows[states == EdgeState.ACKED]] = True
        is_first = np.zeros(len(self), dtype=bool)
        if len(self):
            names = np.stack([self.roots[self.starts], self.edges[self.starts]], axis=1)
            is_first[np.unique(names, axis=0, return_index=True)[1]] = True
        return np.flatnonzero(is_open & ~is_acked & is_first), np.flatnonzero(is_open & is_acked & is_first)


class Leaving:
    """Gives the rows that a portion becomes anchors, for another application.

    Edges are the same when a row is worked on again, so that the next application recognises what it gets twice.
    """

    def __init__(self, received: Received, job: int) -> None:
        """job: the number of the job that sends them."""
        self._received, self._job = received, job
        self.sent: U64Array = np.zeros(len(received.roots), dtype=np.uint64)
        """For each anchor the XOR of the edges that were sent on of it."""

    def anchors(self, places: Places) -> pa.Array:
        """places: for each row that leaves, the row of the portion that it comes from."""
        received = self._received
        which = received.anchors_of(places)
        counts = (received.ends - received.starts)[places]
        edges = child_edges(received.edges[which], np.repeat(_ordinals(places), counts), self._job)
        np.bitwise_xor.at(self.sent, which, edges)
        packed = pack_anchor_arrays(received.roots[which], edges)
        ends = np.concatenate(([0], np.cumsum(counts))) * ANCHOR_BYTES
        if not received.traces:
            offsets = pa.py_buffer(ends.astype(np.int32).tobytes())
            return pa.Array.from_buffers(pa.binary(), len(places), [None, offsets, pa.py_buffer(packed)])
        cells = [
            packed[start:end] + received.traces.get(place, b"")
            for start, end, place in zip(ends[:-1].tolist(), ends[1:].tolist(), places.tolist(), strict=True)
        ]
        return pa.array(cells, pa.binary())


def _ordinals(places: Places) -> U64Array:
    """For each row its number among those of the same place."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    is_first = np.ones(len(places), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    numbers = np.arange(len(places))
    found = np.empty(len(places), dtype=np.uint64)
    found[order] = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    return found
