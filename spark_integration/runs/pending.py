"""Roots of jobs with a shuffle, as workers make and find them: one pass over keys and message ids makes them pending,
portion by portion; another, if rows have failed, finds the roots of these.

The driver completes them when the job is done. It has to know which portions there are, and nothing of their messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from redis_acker import Acker
from redis_acker.store.ids import U64Array, make_roots
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import PENDING, PartitionProgress, Place, field_of
from spark_integration.runs.books import Books
from spark_integration.runs.keeping import STORE_AWAY, Patience
from spark_integration.runs.portions import PortionInput, check_portion, id_sum_after, keys_of, other_rows, own_edges
from spark_integration.runs.spout import TAKEN_OVER
from spark_integration.runs.tracking import ID, Keys, find_places

PORTION_ROWS = 50_000
"""Rows of a portion, at most. The driver and the store keep about a hundred bytes for each."""

ROWS_SCHEMA = "partition int, rows long"
ROOTS_SCHEMA = "key long, root long"


@dataclass(frozen=True)
class MakePending:
    """Makes the messages of a partition pending, and says how many they are."""

    books: Books

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition = _partition()
        rows = PendingTask(self.books, partition).run(batches)
        yield pa.RecordBatch.from_pydict({"partition": pa.array([partition], pa.int32()), "rows": [rows]})


class PendingTask:
    """One task attempt at one partition. Others get the same portions with the same roots: whoever comes first to
    a place in the rows decides where its portion ends, so an input that was cut short does no harm."""

    def __init__(self, books: Books, partition: int) -> None:
        self._books, self._partition = books, partition
        self._acker: Acker = books.store.acker()
        self._progress = RunProgress(self._acker, books.spout, books.run, part=books.part)
        block_size = self._acker.settings.block_size
        self._portion_rows = max(1, PORTION_ROWS // block_size) * block_size  # so that blocks are full
        self._read = Place("", 0, 0)
        """How far it has come."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Makes all rows pending. Returns how many there are."""
        source = PortionInput(batches)
        while source.rows_at_hand():
            self._read = self._next(source)
        return self._read.rows

    def _next(self, source: PortionInput) -> Place:
        """Makes the next portion pending, or finds that another attempt has. Returns the place after it."""
        patience, rows = Patience(), self._portion_rows
        place = Place(field_of(self._books.pass_number, self._partition, self._read.rows), 0, 0)
        while True:
            try:
                batch, end = self._peek(source, rows)
                portion = self._progress.begin(place, batch.num_rows, end.sum)
                check_portion(portion, self._partition, self._read.rows)
                if len(portion.left):
                    self._acker.fail(portion.left, component=TAKEN_OVER, error="its portion has other roots by now")
                rows = portion.rows
                if rows != batch.num_rows:  # another task attempt has cut it so
                    batch, end = self._peek(source, rows)
                if (batch.num_rows, end.sum) != (rows, portion.sum):
                    raise other_rows(self._partition, self._read.rows)
                if portion.stage < PENDING:
                    roots, ids = self._progress.roots_of(portion.first, rows), batch.column(ID)
                    self._books.init(self._acker, portion, roots, own_edges(roots), keys=self._keys(batch), ids=ids)
                    if self._progress.reach(place, portion, PENDING) != "kept":
                        continue
                source.drop(rows)
                return end
            except STORE_AWAY as error:
                patience.wait(error)

    def _peek(self, source: PortionInput, rows: int) -> tuple[pa.RecordBatch, Place]:
        """The next rows, and the place after them."""
        batch = source.peek(rows)
        return batch, Place("", self._read.rows + batch.num_rows, id_sum_after(self._read, batch.column(ID)))

    def _keys(self, batch: pa.RecordBatch) -> Keys:
        """They come with the ids if any is known, and are not asked for otherwise."""
        return keys_of(batch) if len(self._books.known_keys) else self._books.known_keys


@dataclass(frozen=True)
class FindRoots:
    """Finds the roots of some keys, in a partition whose rows come as they came when they were made pending."""

    spout: int
    block_size: int
    portions: tuple[PartitionProgress, ...] = field(repr=False)
    """Of all partitions, in the order of their rows."""
    keys: Keys = field(repr=False)
    """In ascending order."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition = _partition()
        source, place = PortionInput(batches), Place("", 0, 0)
        for portion in (one for one in self.portions if one.place[1] == partition):
            batch = source.peek(portion.rows) if source.rows_at_hand() else None
            if batch is None or (batch.num_rows, id_sum_after(place, batch.column(ID))) != (portion.rows, portion.sum):
                raise other_rows(partition, place.rows)
            place = Place("", place.rows + portion.rows, portion.sum)
            source.drop(portion.rows)
            yield self._found(keys_of(batch), make_roots(self.spout, portion.first, portion.rows, self.block_size))
        if source.rows_at_hand():
            raise other_rows(partition, place.rows)

    def _found(self, keys: Keys, roots: U64Array) -> pa.RecordBatch:
        _, found = find_places(self.keys, keys)
        return pa.RecordBatch.from_arrays(
            [pa.array(keys[found]), pa.array(roots[found].view(np.int64))], names=["key", "root"]
        )


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()
