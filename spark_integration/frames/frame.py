"""Tracked frames: DataFrames that know which messages each of their rows comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameWriter, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from redis_acker.store.message_ids import MessageId
from spark_integration.errors import BadFrame
from spark_integration.frames import anchor_columns, checks
from spark_integration.frames.ending import run_collect, run_sink, run_write, sink_of
from spark_integration.frames.fused import FusedPlan
from spark_integration.frames.groups import GroupedFrame, GroupKey
from spark_integration.frames.hand_over import hand_over
from spark_integration.frames.job import Build, Frames, PlanNode
from spark_integration.frames.repeatable import stored, stored_if_unstable
from spark_integration.frames.sinks import Sink
from spark_integration.frames.steps import BatchStep, RowStep, Step
from spark_integration.frames.tracked_steps import TrackedStep
from spark_integration.runs.failing import Tracking
from spark_integration.runs.in_stream import RunInStream
from spark_integration.runs.life import RunOptions
from spark_integration.runs.messages import MessageFrame
from spark_integration.runs.summary import Summary
from spark_integration.runs.tracking import COLUMN
from spark_integration.workers import map_in_workers

Schema = str | StructType
RowFunction = Callable[[Row], Any]


class TrackedFrame:
    """A DataFrame with a hidden column that names the messages behind each row.

    Steps are lazy. A sink runs the job: it makes a root pending for each message, fails the messages of rows that raise
    at once, and completes the others when they have been written. However often Spark reruns a part of the work,
    each root gets one final event.
    """

    def __init__(self, node: PlanNode, options: RunOptions, previews: Frames) -> None:
        self._node, self._options, self._previews = node, options, previews
        if node.parents and not options.in_stream:
            _ = self._frame  # made now, so that a mistake is reported where it is made; a run makes its own

    @cached_property
    def _frame(self) -> DataFrame:
        return self._previews.of(self._node)

    @property
    def schema(self) -> StructType:
        return StructType([field for field in self._frame.schema if field.name != COLUMN])

    @property
    def columns(self) -> list[str]:
        return [name for name in self._frame.columns if name != COLUMN]

    def preview(self) -> DataFrame:
        """The rows as a plain DataFrame, to look at: nothing is tracked, and rows that raise are left out."""
        return self._frame.drop(COLUMN)

    def in_stream(self, in_stream: RunInStream) -> TrackedFrame:
        """The same frame, whose run is one of a stream."""
        options = replace(self._options, in_stream=in_stream, resume="keys")
        return TrackedFrame(self._node, options, self._previews)

    @property
    def is_fused(self) -> bool:
        """Whether tasks keep the books, if it ends in a sink for rows or batches."""
        return FusedPlan.of(self._node) is not None

    @property
    def columns_of_messages(self) -> list[str]:
        """Columns of the rows that workers get first; none if tasks do not keep the books."""
        plan = FusedPlan.of(self._node)
        return plan.whole.columns if plan else []

    def rows_of(self, message_ids: Sequence[MessageId]) -> Iterator[tuple[MessageId, pa.Table]]:
        """The rows of some messages, as they came in: one for each that is there."""
        for one in self._node.inputs().values():
            assert isinstance(one, MessageFrame)
            rows = one.with_only(message_ids).with_keys().drop(COLUMN).toArrow()
            ids = rows.column(one.message_id).to_pylist()
            yield from ((message_id, rows.slice(i, 1)) for i, message_id in enumerate(ids))

    def keys_of(self, message_ids: Iterable[MessageId]) -> dict[int, MessageId]:
        """Messages by the keys that their rows have."""
        found: dict[int, MessageId] = {}
        for one in self._node.inputs().values():
            assert isinstance(one, MessageFrame)
            found |= one.keys_of(message_ids)
        return found

    # -- native steps --------------------------------------------------------------------------------------------

    def select(self, *columns: str | Column) -> TrackedFrame:
        def select(frame: DataFrame) -> DataFrame:
            made = frame.select(*columns)
            return made if COLUMN in made.columns else frame.select(*columns, COLUMN)

        return self._native(select, is_projection=True)

    def with_column(self, name: str, column: Column) -> TrackedFrame:
        return self._native(lambda frame: frame.withColumn(checks.not_reserved(name), column), is_projection=True)

    def where(self, condition: str | Column) -> TrackedFrame:
        """Keeps some rows. A row that is left out counts as done."""
        return self._native(lambda frame: frame.where(condition), condition=condition)

    def explode(self, column: str | Column, name: str | None = None) -> TrackedFrame:
        """A row for each element of an array. name: the column that holds it, by default the array's own."""
        if name is None and not isinstance(column, str):
            raise BadFrame("explode() of an expression needs the name of the column it makes: explode(expr, 'name').")
        target = checks.not_reserved(name or str(column))
        return self._native(lambda frame: frame.withColumn(target, F.explode(column)))

    def repartition(self, *args: Any) -> TrackedFrame:
        return self._native(lambda frame: frame.repartition(*args))

    def order_by(self, *columns: str | Column) -> TrackedFrame:
        return self._native(lambda frame: frame.orderBy(*columns))

    def join(self, other: TrackedFrame | DataFrame, on: str | list[str] | Column, how: str = "inner") -> TrackedFrame:
        """Rows of both sides. If the other side is tracked too, a row stands for the messages of both."""
        return self._then(other, lambda frames, _: anchor_columns.join(frames[0], frames[1], on, how))

    def union(self, other: TrackedFrame) -> TrackedFrame:
        """All rows of both; columns are matched by name."""
        if not isinstance(other, TrackedFrame):
            raise BadFrame("union() takes a tracked frame: call track() on the other first.")
        return self._then(other, lambda frames, _: anchor_columns.union(frames[0], frames[1]))

    def group_by(self, *columns: str) -> GroupedFrame:
        """Groups rows by columns; name an expression with with_column() first."""
        checks.check_group_columns(self.schema, columns)
        return GroupedFrame(self, columns)

    # -- Python steps --------------------------------------------------------------------------------------------

    def map(
        self, function: RowFunction, schema: Schema, *, name: str | None = None, deterministic: bool = True
    ) -> TrackedFrame:
        """Calls function(row) for each row; it returns the row that takes its place. If it raises, the messages behind
        the row fail with the name of the step and the error, and the other rows go on.

        deterministic=False: the function may return something else when Spark calls it again for the same row, so what
        it returned is stored before anything works on it."""
        return self._python(RowStep, function, schema, name=name, deterministic=deterministic)

    def flat_map(
        self,
        function: Callable[[Row], Iterable[Any]],
        schema: Schema,
        *,
        name: str | None = None,
        deterministic: bool = True,
    ) -> TrackedFrame:
        """Like map(), for a function that returns any number of rows: tuples, dicts or Rows."""
        flat_map = partial(RowStep, gives_many=True)
        return self._python(flat_map, function, schema, name=name, deterministic=deterministic)

    def map_batches(
        self,
        function: Callable[[Any], Any],
        schema: Schema,
        *,
        kind: Literal["arrow", "pandas"] = "arrow",
        name: str | None = None,
        deterministic: bool = True,
    ) -> TrackedFrame:
        """Calls function(batch) with Arrow record batches or pandas frames. It returns as many rows, in their order, or
        keeps the column `__acker` of the rows it keeps. A batch that raises is halved until the rows that raise are
        found, so the function must treat each row by itself."""
        if kind not in ("arrow", "pandas"):
            raise BadFrame(f"kind must be 'arrow' or 'pandas', not {kind!r}.")
        step = partial(BatchStep, pandas=kind == "pandas")
        return self._python(step, function, schema, name=name, deterministic=deterministic)

    # -- sinks ---------------------------------------------------------------------------------------------------

    def write(self, save: Callable[[DataFrameWriter], object]) -> Summary:
        """Runs the job and lets save(writer) write its rows; completes the messages once that has succeeded:
        frame.write(lambda writer: writer.mode("append").parquet(path))."""
        return run_write(self._node, self._options, save)

    def collect(self) -> tuple[list[Row], Summary]:
        """Runs the job and brings its rows to the driver, where they must fit; completes the messages once they have
        arrived."""
        return run_collect(self._node, self._options)

    def sink(
        self,
        function: Callable[[Any], object],
        *,
        per: Literal["row", "batch", "partition"] = "batch",
        concurrency: int = 1,
        sink_timeout_s: float = 600.0,
        name: str | None = None,
        anchors: str | None = None,
    ) -> Summary:
        """Runs the job and hands its rows to function in the executors: single Rows, Arrow record batches, or all
        batches of a partition as an iterator. If it raises, the messages of that row, batch or partition fail. Spark
        may pass rows more than once: write so that this does no harm.

        concurrency: how many calls run at once, in threads of each worker.
        sink_timeout_s: a call that takes longer is taken to hang, and its task fails. Not for partitions.
        anchors: hands the rows over to another application. They have a column of bytes of this name, which has to go
        with them; their messages stay pending until that application has acked every row, each within the timeout of
        the namespace. For jobs without a shuffle. Outcomes says what becomes of the messages.

        In a job without a shuffle messages complete while it runs, and if it dies, the next run continues from there.
        """
        return self.run_sink(sink_of(function, per, concurrency, sink_timeout_s, name, anchors))

    def run_sink(self, sink: Sink) -> Summary:
        """sink(), with what a stream was told once for all its micro-batches."""
        if sink.anchors is not None:
            self.check_leaving(sink.anchors, sink.per)
        return run_sink(self._node, lambda: self._frame, self._options, sink)

    def check_leaving(self, anchors: str, per: str, *, as_they_came: bool = False) -> None:
        """Raises BadFrame if rows cannot leave with their anchors. as_they_came: steps must get them unchanged."""
        plan = None if per == "partition" else FusedPlan.of(self._node)
        is_changed = as_they_came and plan is not None and bool(plan.projections)
        replays = self._options.replays
        checks.check_leaving(self.columns, anchors, is_fused=plan is not None, replays=replays, is_changed=is_changed)

    def to_df(self, anchors: str = "anchors") -> DataFrame:
        """The rows with their anchors in a column of bytes, for another application that acks them: with
        Anchors.from_bytes(), or as a tracked frame again with track(anchors=). Runs the steps once, at once. The
        messages stay pending until all of their rows are acked, each within the timeout of the namespace. A job without
        a shuffle does better with sink(anchors=), which acks what it was given only when the rows are written."""
        return hand_over(self._node, self._options, anchors)

    # -- how steps are made --------------------------------------------------------------------------------------

    def _then(
        self, other: TrackedFrame | DataFrame | None, build: Build, group_key: GroupKey | None = None
    ) -> TrackedFrame:
        parents: tuple[PlanNode, ...] = (self._node,)
        previews = self._previews
        if isinstance(other, TrackedFrame):
            self._check_namespace(other)
            parents, previews = (self._node, other._node), previews.with_those_of(other._previews)
        elif other is not None:
            parents = (self._node, PlanNode((), lambda frames, _: other))
        return TrackedFrame(PlanNode(parents, stored_if_unstable(build), group_key), self._options, previews)

    def _native(self, step: Callable[[DataFrame], DataFrame], **kind: Any) -> TrackedFrame:
        """kind: what PlanNode says of native steps."""
        build = stored_if_unstable(lambda frames, _: step(frames[0]))
        return TrackedFrame(PlanNode((self._node,), build, **kind), self._options, self._previews)

    def _python(
        self, make: Callable[..., Step], function: Any, schema: Schema, *, name: str | None, deterministic: bool
    ) -> TrackedFrame:
        name, fields = name or checks.name_of(function), checks.fields_of(schema)
        step = make(name, function, to_arrow_schema(fields, timezone="UTC"))

        def build(frames: Sequence[DataFrame], tracking: Tracking | None) -> DataFrame:
            [frame] = frames
            with_keys = StructType([*fields, StructField(COLUMN, frame.schema[COLUMN].dataType)])
            made = map_in_workers(frame, TrackedStep(step, tracking), with_keys, name=name)
            return made if deterministic or tracking is None else stored(made)

        return TrackedFrame(PlanNode((self._node,), build, python=step), self._options, self._previews)

    def _check_namespace(self, other: TrackedFrame) -> None:
        mine, theirs = self._options.acker, other._options.acker
        if (mine.namespace, mine.urls) != (theirs.namespace, theirs.urls):
            raise BadFrame(f"Both frames must be tracked in one namespace, not in {mine} and {theirs}.")
