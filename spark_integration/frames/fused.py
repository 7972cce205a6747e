"""Jobs without a shuffle: Python steps and sink run fused, in one pass through a worker that keeps the books itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from types import CodeType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DatetimeType,
    NumericType,
    StringType,
    StructType,
)

from spark_integration.frames.fingerprint import input_fingerprint, is_only_projected, known_count
from spark_integration.frames.job import InputNode, PlanNode
from spark_integration.frames.repeatable import keeps_order
from spark_integration.frames.rows import Rows
from spark_integration.frames.sinks import Sink
from spark_integration.frames.steps import COUNT_SCHEMA, FailedRows, Step
from spark_integration.runs.arrivals import Arrivals
from spark_integration.runs.booked import BookedRun, InputFingerprint
from spark_integration.runs.books import Books, FailedPlaces, TaskBooks
from spark_integration.runs.deliveries import Deliveries, Leaving
from spark_integration.runs.in_stream import RunInStream
from spark_integration.runs.leaving_books import LeavingBooks
from spark_integration.runs.life import RunOptions
from spark_integration.runs.messages import MessageFrame
from spark_integration.runs.portions import field_in
from spark_integration.runs.summary import Summary
from spark_integration.runs.traces import RunTrace
from spark_integration.runs.tracking import COLUMN
from spark_integration.workers import is_connect, map_in_workers

_HASHED = (NumericType, StringType, BinaryType, BooleanType, DatetimeType)
"""Beside arrays and structs of them."""


@dataclass(frozen=True)
class FusedPlan:
    """The plan of a job without a shuffle: native columns, then conditions, then steps in Python."""

    messages: MessageFrame | Deliveries
    projections: tuple[PlanNode, ...]
    conditions: tuple[Column | str, ...]
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, node: PlanNode) -> FusedPlan | None:
        """The plan that ends with a node; None if it has to be run otherwise."""
        steps: list[Step] = []
        conditions: list[Column | str] = []
        projections: list[PlanNode] = []
        while node.python:
            steps.insert(0, node.python)
            [node] = node.parents
        while node.condition is not None:
            conditions.insert(0, node.condition)
            [node] = node.parents
        while node.is_projection:
            projections.insert(0, node)
            [node] = node.parents
        if not isinstance(node, InputNode):
            return None
        plan = cls(node.input, tuple(projections), tuple(conditions), tuple(steps))
        return plan if plan._gives_each_message_once() else None

    def _gives_each_message_once(self) -> bool:
        if is_connect(self.messages.frame.sparkSession):
            return not self.projections  # plans are not visible there
        return is_only_projected(self.whole, self.messages.frame)

    @cached_property
    def whole(self) -> DataFrame:
        """The frame of all messages."""
        return self.frame(self.messages)

    def frame(self, messages: MessageFrame | Deliveries) -> DataFrame:
        """What workers get: a row for each message."""
        frame = messages.with_books(has_id_column=not self.projections)
        for node in self.projections:
            frame = node.build([frame], None)
        if self.conditions:
            # Rows that are left out are marked, not removed: a worker has to see every message.
            keep = F.lit(True)
            for one in self.conditions:
                condition = F.expr(one) if isinstance(one, str) else one
                # Not evaluated for rows that are left out already, which it may not be made for.
                keep = F.when(keep, F.coalesce(condition, F.lit(False))).otherwise(False)
            frame = frame.withColumn(COLUMN, F.col(COLUMN).withField("keep", keep))
        elif not self.projections and isinstance(messages, MessageFrame):
            frame = frame.withColumn(COLUMN, F.col(f"{COLUMN}.key"))  # handed to workers faster than a struct
        return frame

    def fingerprint_of_steps(self, sink: Sink) -> str:
        """Changes when a step or the sink has another name or function."""
        told = [(one.name, _code(one.function)) for one in self.steps] + [(sink.name, _code(sink.function))]
        return hashlib.blake2b(repr(told).encode(), digest_size=8).hexdigest()


def _code(function: Any) -> str:
    code = getattr(function, "__code__", function)
    if not isinstance(code, CodeType):
        return type(function).__name__
    return f"{code.co_code!r} {code.co_names} {[_constant(one) for one in code.co_consts]}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _code(value)
    # The order of a set is another in every process.
    return repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)


def run_fused(messages: MessageFrame, plan: FusedPlan, options: RunOptions, sink: Sink) -> Summary:
    """Runs the job, and again for what failed as often as one call may replay it."""
    if options.in_stream:
        return _run_in_stream(messages, plan, options, options.in_stream, sink)
    told = input_fingerprint(plan.whole), plan.fingerprint_of_steps(sink), partial(known_count, messages.frame)
    run = BookedRun(messages, options, *told, hands_over=sink.anchors is not None)
    with run, RunTrace(run.name, [messages.spout]) as trace:
        rows = run.rows_done
        if rows is None:
            books = run.books(messages, trace=trace.context)
            rows = _pass(plan.whole, FusedSink(plan.steps, sink, books, is_replay=False))
        for again in run.replays():
            books = run.books(again, trace=trace.context)
            _pass(plan.frame(again), FusedSink(plan.steps, sink, books, is_replay=True))
        return trace.ended(run.summary(rows))


def _run_in_stream(
    messages: MessageFrame, plan: FusedPlan, options: RunOptions, in_stream: RunInStream, sink: Sink
) -> Summary:
    """Runs the job as one of a stream, which brings messages that failed again by itself."""
    told = InputFingerprint("", "", 0, in_stream.input)
    hands_over = sink.anchors is not None
    run = BookedRun(messages, options, told, plan.fingerprint_of_steps(sink), hands_over=hands_over)
    with run, RunTrace(run.name, [messages.spout]) as trace:
        # Behind native columns a row is not the one that came in.
        keeps_rows = bool(in_stream.rows) and not plan.projections
        books = run.books(
            messages,
            waiting=in_stream.waiting() if keeps_rows else (),
            part=in_stream.progress.part,
            pace=in_stream.pace,
            rows=in_stream.rows,
            keeps_rows=keeps_rows,
            tells_ids=in_stream.tells_ids or hands_over,
            trace=trace.context,
        )
        rows = _pass(
            plan.whole, FusedSink(plan.steps, sink, books, is_replay=in_stream.is_replay, arrivals=in_stream.arrivals)
        )
        return trace.ended(run.summary(rows))


def _pass(frame: DataFrame, worker: FusedSink) -> int:
    """Runs the job over a frame."""
    counts = map_in_workers(in_order(frame), worker, COUNT_SCHEMA, name=worker.sink.name)
    [[rows]] = counts.agg(F.sum("rows")).collect()
    return rows or 0


def in_order(frame: DataFrame) -> DataFrame:
    """The frame, with rows in the same order however often a part of it is read: what the store knows of a partition is
    how many of its rows are done, and that their keys are the same. Rows with the same key are sorted by all else."""
    if keeps_order(frame):
        return frame
    key = f"{COLUMN}.key" if isinstance(frame.schema[COLUMN].dataType, StructType) else COLUMN
    rest = [F.col(f"`{one.name}`") for one in frame.schema if one.name != COLUMN and _has_hash(one.dataType)]
    return frame.sortWithinPartitions(key, *([F.xxhash64(*rest)] if rest else []))


def _has_hash(kind: DataType) -> bool:
    """Whether Spark can hash values of a type."""
    if isinstance(kind, ArrayType):
        return _has_hash(kind.elementType)
    if isinstance(kind, StructType):
        return all(_has_hash(one.dataType) for one in kind)
    return isinstance(kind, _HASHED)


@dataclass(frozen=True)
class FusedSink:
    """All Python of a job, as it runs in a worker."""

    steps: tuple[Step, ...]
    sink: Sink
    books: Books
    is_replay: bool
    arrivals: Arrivals | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if self.sink.anchors is None:
            task = TaskBooks(self.books, context.partitionId(), self.work)
        else:
            task = LeavingBooks(self.books, context.partitionId(), self.work)
        yield pa.RecordBatch.from_pylist([{"rows": task.run(batches)}])

    def work(self, batch: pa.RecordBatch, leaving: Leaving | None = None) -> FailedPlaces:
        failed = work_through(self.steps, self.sink, batch, leaving, is_replay=self.is_replay)
        if self.arrivals:
            places = {place for some in failed.values() for place in some}
            self.arrivals.note(self.books.store.acker(), batch, places)
        return failed


def work_through(
    steps: tuple[Step, ...], sink: Sink, batch: pa.RecordBatch, leaving: Leaving | None, *, is_replay: bool
) -> FailedPlaces:
    """Takes the rows of a portion through all steps and into the sink. Returns when the sink has returned.

    leaving: gives rows their anchors, if the sink wants them."""
    failed = FailedRows(is_replay=is_replay)
    rows = Rows.of(batch.drop_columns([COLUMN]))
    if (keep := field_in(batch, "keep")) is not None:
        rows = rows.without(pc.indices_nonzero(pc.invert(keep)).to_numpy())
    takes_rows = [*(one.takes_rows for one in steps), sink.takes_rows]
    for i, step in enumerate(steps):
        rows = step.apply(rows, failed, as_values=takes_rows[i + 1])
    # A message that has failed is over: its other rows are not worked on.
    rows = rows.without(failed.places())
    if sink.anchors is not None and leaving is not None:
        rows = rows.with_column(sink.anchors, leaving.anchors(rows.places))
    sink.write(rows, failed)
    return failed.by_cause
