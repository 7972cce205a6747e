"""Steps and sinks of jobs with a shuffle, each in a pass through workers of its own. Rows carry the keys of their
messages; workers fail the roots behind them, and the driver completes the rest when the job is done."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from redis_acker.errors import escaped, text_of
from redis_acker.store.streams import Cause
from spark_integration.errors import CutShort
from spark_integration.frames.rows import Rows
from spark_integration.frames.sinks import Sink
from spark_integration.frames.steps import COUNT_SCHEMA, RAISED, FailedRows, Step
from spark_integration.runs.failing import Tracking
from spark_integration.runs.tracking import COLUMN, Keys, keys_in
from spark_integration.workers import map_in_workers

ArrowBatches = Iterator[pa.RecordBatch]

SEND_EVERY_S = 0.5
"""How long a failed row waits at most to be sent together with others, while rows keep failing."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedStep:
    """A step over the Arrow batches of a partition."""

    step: Step
    tracking: Tracking | None
    """None in a preview."""

    def __call__(self, batches: ArrowBatches) -> ArrowBatches:
        for batch in batches:
            failed = _SentRows(batch.column(COLUMN), self.tracking)
            rows = self.step.apply(Rows.of(batch.drop_columns([COLUMN])), failed, as_values=False)
            failed.send()  # before the yield: under a limit what comes after it may never run
            cells = batch.column(COLUMN)
            if len(rows) != batch.num_rows or not bool((rows.places[1:] > rows.places[:-1]).all()):
                cells = cells.take(pa.array(rows.places))
            yield rows.as_batch().append_column(COLUMN, cells)


@dataclass(frozen=True)
class TrackedSink:
    """A sink over the Arrow batches of a partition."""

    sink: Sink
    tracking: Tracking | None

    def __call__(self, batches: ArrowBatches) -> ArrowBatches:
        total = 0
        for batch in batches:
            failed = _SentRows(batch.column(COLUMN), self.tracking)
            self.sink.write(Rows.of(batch.drop_columns([COLUMN])), failed)
            total += batch.num_rows - len(failed.places())
            failed.send()
        yield pa.RecordBatch.from_pylist([{"rows": total}])


class _SentRows(FailedRows):
    """Rows of a batch that failed: the roots behind them are failed together, and soon."""

    def __init__(self, cells: pa.Array, tracking: Tracking | None) -> None:
        super().__init__(is_replay=bool(tracking and tracking.is_replay))
        self._cells, self._tracking = cells, tracking
        self._sent: dict[Cause, int] = {}
        self._send_at_s = 0.0
        if tracking:
            tracking.connect()

    def add(self, step: str, place: int, error: BaseException) -> None:
        super().add(step, place, error)
        if not len(keys_in(self._cells.slice(place, 1))):
            log.warning(
                "Step %s raised an error for a row that comes from no message: %s", step, escaped(text_of(error))
            )
        if time.monotonic() >= self._send_at_s:
            self.send()

    def send(self) -> None:
        unsent = {cause: places[self._sent.get(cause, 0) :] for cause, places in self.by_cause.items()}
        if self._tracking and any(unsent.values()):
            self._tracking.fail(
                {cause: [keys_in(self._cells.take(pa.array(some)))] for cause, some in unsent.items() if some}
            )
        self._sent = {cause: len(places) for cause, places in self.by_cause.items()}
        self._send_at_s = time.monotonic() + SEND_EVERY_S


def write_partitions(frame: DataFrame, tracking: Tracking, *, name: str, function: Callable[[Any], object]) -> None:
    """Hands each partition of a frame to a function."""
    kept = frame.persist(StorageLevel.DISK_ONLY)  # so that what is counted is what the sink gets
    try:
        sink = PartitionSink(name, function, tracking, _rows_by_partition(kept))
        map_in_workers(kept, sink, COUNT_SCHEMA, name=name).agg(F.sum("rows")).collect()
    finally:
        kept.unpersist()


def _rows_by_partition(frame: DataFrame) -> dict[int, int]:
    """How many rows each partition has. Known for certain: a task whose input was cut short does not succeed."""

    def count(batches: ArrowBatches) -> ArrowBatches:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pylist([{"partition": _partition(), "rows": rows}])

    counted = map_in_workers(frame.select(COLUMN), count, "partition long, rows long", name="count")
    return {row.partition: row.rows for row in counted.collect()}


@dataclass(frozen=True)
class PartitionSink:
    """Hands an iterator over the Arrow batches of a partition to a function. If it raises, the roots of all rows of the
    partition fail, whether it has taken them or not.

    The iterator ends only when all rows were handed out. If the input ends before that, because Spark has failed on the
    other side, the iterator raises: a function that commits at the end of its input never commits a part.
    """

    name: str
    function: Callable[[Iterator[pa.RecordBatch]], Any]
    tracking: Tracking | None
    expected: Mapping[int, int] = field(default_factory=dict)
    """How many rows each partition has."""

    def __call__(self, batches: ArrowBatches) -> ArrowBatches:
        assert self.tracking is not None
        self.tracking.connect()
        rows = _PartitionRows(batches, self.expected.get(_partition(), 0))
        error: BaseException | None = None
        handing_out = rows.hand_out()
        try:
            self.function(handing_out)
        except RAISED as raised:
            error = raised
        left = sum(batch.num_rows for batch in handing_out) if rows.lost is None else 0
        if rows.lost is not None:
            raise rows.lost
        if error is None and left:
            error = ValueError(f"the sink returned without taking {left} rows of its partition")
        if error is not None and rows.keys:
            self.tracking.fail({Cause.of(self.name, error): rows.keys})
        yield pa.RecordBatch.from_pylist([{"rows": 0 if error else rows.seen}])


class _PartitionRows:
    """The rows of a partition on their way to a function."""

    def __init__(self, batches: ArrowBatches, expected: int) -> None:
        self._batches, self._expected = batches, expected
        self.keys: list[Keys] = []
        self.seen = 0
        self.lost: BaseException | None = None
        """An error that is Spark's and not the function's: the task fails, and is tried again."""

    def hand_out(self) -> ArrowBatches:
        try:
            for batch in self._batches:
                self.keys.append(keys_in(batch.column(COLUMN)))
                self.seen += batch.num_rows
                yield batch.drop_columns([COLUMN])
            if self.seen != self._expected:
                raise CutShort(f"A partition has {self._expected:,} rows, and its input ended after {self.seen:,}.")
        except GeneratorExit:
            raise
        except BaseException as error:
            self.lost = error
            raise


def _partition() -> int:
    context = TaskContext.get()
    return context.partitionId() if context else 0
