"""Tracked frames: DataFrames that know which messages each of their rows comes from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameWriter, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from redis_acker import Acker
from redis_acker.retries import RetryPolicy
from spark_integration import anchor_columns
from spark_integration.deliveries import Deliveries
from spark_integration.errors import BadFrame
from spark_integration.hand_over import hand_over
from spark_integration.jobs import Options, run_job
from spark_integration.nodes import Build, Frames, Grouping, Node, SourceNode
from spark_integration.plans import is_deterministic, stored
from spark_integration.sinks import COUNT_SCHEMA, BatchSink, PartitionSink
from spark_integration.source import Source, check_frame, check_message_id
from spark_integration.steps import BatchStep, RowStep
from spark_integration.summary import Summary
from spark_integration.tracking import COLUMN, Tracking

Schema = str | StructType
RowFunction = Callable[[Row], Any]


def track(
    frame: DataFrame,
    *,
    acker: Acker,
    spout: str,
    message_id: str,
    retries: RetryPolicy | None = None,
    replays: int = 0,
    max_failures: int | None = None,
    progress: bool | None = None,
    stable_source: bool | None = None,
) -> TrackedFrame:
    """The frame, with each row as a message: it is complete when all that steps make of it has reached a sink.

    message_id: the column that names a row; unique, never null. The store keeps it, and a failure brings it back.
    retries: after how many failed attempts, in this run and others, a message is given up.
    replays: how often a sink tries failed messages again within one call; what it writes to must take appends.
    max_failures: more failed messages than this cancel the job.
    progress: a live line on stderr; by default if that is a terminal.
    stable_source: whether the frame gives the same rows when it is read again. By default that is asked of its plan,
    and a frame of which it is not known (JDBC, Kafka, random numbers) is stored in the executors first.
    """
    frame = check_frame(frame, stable_source=stable_source)
    check_message_id(frame, message_id)
    options = Options(acker, retries or RetryPolicy(), replays, max_failures, progress)
    return TrackedFrame(SourceNode.of(Source(frame, spout, message_id)), options, Frames())


def resume(
    frame: DataFrame,
    *,
    acker: Acker,
    name: str,
    anchors: str = "anchors",
    max_failures: int | None = None,
    progress: bool | None = None,
    stable_source: bool | None = None,
) -> TrackedFrame:
    """Goes on with rows that another application handed over with their anchors, in a column of bytes. A sink acks
    them; what fails is replayed by the spout its message comes from. name: what this job is called."""
    frame = check_frame(frame, stable_source=stable_source)
    if anchors not in frame.columns or not isinstance(frame.schema[anchors].dataType, BinaryType):
        raise BadFrame(
            f"There is no column {anchors!r} of bytes for the anchors: the frame is {frame.schema.simpleString()}."
        )
    options = Options(acker, RetryPolicy(), 0, max_failures, progress)
    return TrackedFrame(SourceNode.of(Deliveries(frame, anchors, name)), options, Frames())


class TrackedFrame:
    """A DataFrame with a hidden column that names the messages behind each row.

    Steps are lazy. A sink runs the job: it makes a root pending for each message, fails at once those of rows that
    raise, and completes the others when everything has been written. However often Spark runs a part of the work
    again, each root gets one final event.
    """

    def __init__(self, node: Node, options: Options, previews: Frames) -> None:
        self._node, self._options = node, options
        # Made now so that a mistake is reported where it is made; a run makes its own.
        self._previews = previews
        self._frame = previews.of(node)

    @property
    def schema(self) -> StructType:
        return StructType([field for field in self._frame.schema if field.name != COLUMN])

    @property
    def columns(self) -> list[str]:
        return [name for name in self._frame.columns if name != COLUMN]

    def preview(self) -> DataFrame:
        """The rows as a plain DataFrame, to be looked at: nothing is tracked, and rows that raise are left out."""
        return self._frame.drop(COLUMN)

    # -- native steps --------------------------------------------------------------------------------------------

    def select(self, *columns: str | Column) -> TrackedFrame:
        def select(frame: DataFrame) -> DataFrame:
            made = frame.select(*columns)
            return made if COLUMN in made.columns else frame.select(*columns, COLUMN)

        return self._native(select)

    def with_column(self, name: str, column: Column) -> TrackedFrame:
        return self._native(lambda frame: frame.withColumn(_not_reserved(name), column))

    def where(self, condition: str | Column) -> TrackedFrame:
        """Keeps some rows. What is left out is done."""
        return self._native(lambda frame: frame.where(condition))

    def explode(self, column: str | Column, name: str | None = None) -> TrackedFrame:
        """A row for each element of an array; name: the column to hold it, by default the array's own."""
        if name is None and not isinstance(column, str):
            raise BadFrame("explode() of an expression needs the name of the column it makes: explode(expr, 'name').")
        target = _not_reserved(name or str(column))
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
            raise BadFrame("Only a tracked frame can be united with a tracked frame: call track() on the other first.")
        return self._then(other, lambda frames, _: anchor_columns.union(frames[0], frames[1]))

    def group_by(self, *columns: str) -> GroupedFrame:
        """Groups rows by columns; name an expression with with_column() first."""
        for name in columns:
            if not isinstance(name, str) or name not in self.columns:
                raise BadFrame(f"group_by() takes names of columns, and {name!r} is none of {self.columns}.")
            kind = self._frame.schema[name].dataType
            if isinstance(kind, StringType) and kind.simpleString() != "string":
                raise BadFrame(
                    f"group_by() cannot group by {name!r}, whose texts are equal by a collation: normalise it."
                )
        return GroupedFrame(self, columns)

    # -- Python steps --------------------------------------------------------------------------------------------

    def map(
        self, function: RowFunction, schema: Schema, *, name: str | None = None, deterministic: bool = True
    ) -> TrackedFrame:
        """Calls function(row) for each row; it gives the row that takes its place. If it raises, the messages behind
        the row fail with the name of the step and the error, and the other rows go on.

        deterministic=False: the function may give something else when Spark calls it again for the same row; what it
        gave is then stored before anything works on it."""
        return self._rows(function, schema, name, gives_many=False, deterministic=deterministic)

    def flat_map(
        self,
        function: Callable[[Row], Iterable[Any]],
        schema: Schema,
        *,
        name: str | None = None,
        deterministic: bool = True,
    ) -> TrackedFrame:
        """As map(), for a function that gives any number of rows: tuples, dicts or Rows."""
        return self._rows(function, schema, name, gives_many=True, deterministic=deterministic)

    def map_batches(
        self,
        function: Callable[[Any], Any],
        schema: Schema,
        *,
        kind: Literal["arrow", "pandas"] = "arrow",
        name: str | None = None,
        deterministic: bool = True,
    ) -> TrackedFrame:
        """Calls function(batch) with Arrow record batches or pandas frames. It gives as many rows, in their order, or
        keeps the column `__acker` of the rows it keeps. A batch that raises is halved until the rows that raise are
        found, so the function must treat each row by itself."""
        if kind not in ("arrow", "pandas"):
            raise BadFrame(f"kind must be 'arrow' or 'pandas', not {kind!r}.")
        step, fields = name or _name_of(function), _fields(schema)
        arrow = to_arrow_schema(fields, timezone="UTC")
        pandas = kind == "pandas"
        return self._python(
            step,
            fields,
            lambda tracking: BatchStep(step, function, arrow, pandas, tracking),
            deterministic=deterministic,
        )

    # -- sinks ---------------------------------------------------------------------------------------------------

    def write(self, save: Callable[[DataFrameWriter], object]) -> Summary:
        """Runs the job and lets save(writer) write its rows; completes the messages once that has succeeded:
        frame.write(lambda writer: writer.mode("append").parquet(path))."""

        def write(frame: DataFrame, tracking: Tracking) -> None:
            if isinstance(save(frame.drop(COLUMN).write), DataFrameWriter):
                raise BadFrame("Nothing was written: end with a call that writes, such as writer.parquet(path).")

        return run_job(self._node, self._options, write)

    def collect(self) -> tuple[list[Row], Summary]:
        """Runs the job and brings its rows, which must fit there, to the driver; completes the messages once they have
        arrived."""
        rows: list[Row] = []

        def write(frame: DataFrame, tracking: Tracking) -> None:
            rows.extend(frame.drop(COLUMN).collect())

        return rows, run_job(self._node, self._options, write)

    def sink(
        self,
        function: Callable[[pa.RecordBatch], object] | Callable[[Iterator[pa.RecordBatch]], object],
        *,
        per: Literal["batch", "partition"] = "batch",
        name: str | None = None,
    ) -> Summary:
        """Runs the job and hands its rows to function in the executors, as Arrow record batches: one at a time, or
        all of a partition as an iterator. If it raises, the messages of that batch or partition fail. Spark may hand
        over a batch more than once: write so that this does no harm."""
        kinds: dict[str, Any] = {"batch": BatchSink, "partition": PartitionSink}
        if per not in kinds:
            raise BadFrame(f"per must be 'batch' or 'partition', not {per!r}.")
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise BadFrame("A sink is called and does its work: a generator or async function would do nothing.")
        step = name or _name_of(function)

        def counts(frame: DataFrame, tracking: Tracking | None) -> DataFrame:
            made: DataFrame = frame.mapInArrow(_named(kinds[per](step, function, tracking), step), COUNT_SCHEMA)
            return made

        def write(frame: DataFrame, tracking: Tracking) -> None:
            counts(frame, tracking).agg(F.sum("rows")).collect()

        counts(self._frame, None)  # a function that cannot be sent is refused before anything has begun
        return run_job(self._node, self._options, write)

    def to_df(self, anchors: str = "anchors") -> DataFrame:
        """The rows with their anchors in a column of bytes, for another application that is to ack them: with
        Anchors.from_bytes(), or as a tracked frame again with resume(). Runs the steps once, at once. The messages
        stay pending until all of their rows are acked, each within the timeout of the namespace."""
        return hand_over(self._node, self._options, anchors)

    # -- how steps are made --------------------------------------------------------------------------------------

    def _then(
        self, other: TrackedFrame | DataFrame | None, build: Build, grouping: Grouping | None = None
    ) -> TrackedFrame:
        parents: tuple[Node, ...] = (self._node,)
        previews = self._previews
        if isinstance(other, TrackedFrame):
            self._check_namespace(other)
            parents, previews = (self._node, other._node), previews.with_those_of(other._previews)
        elif other is not None:
            parents = (self._node, Node((), lambda frames, _: other))
        return TrackedFrame(Node(parents, _stored_if_unstable(build), grouping), self._options, previews)

    def _native(self, step: Callable[[DataFrame], DataFrame]) -> TrackedFrame:
        return self._then(None, lambda frames, _: step(frames[0]))

    def _rows(
        self, function: RowFunction, schema: Schema, name: str | None, *, gives_many: bool, deterministic: bool
    ) -> TrackedFrame:
        step, fields = name or _name_of(function), _fields(schema)
        arrow = to_arrow_schema(fields, timezone="UTC")

        def make(tracking: Tracking | None) -> RowStep:
            return RowStep(step, function, arrow, gives_many, tracking)

        return self._python(step, fields, make, deterministic=deterministic)

    def _python(
        self, name: str, fields: StructType, make: Callable[[Tracking | None], Any], *, deterministic: bool
    ) -> TrackedFrame:
        def build(frames: Any, tracking: Tracking | None) -> DataFrame:
            [frame] = frames
            schema = StructType([*fields, StructField(COLUMN, frame.schema[COLUMN].dataType)])
            made: DataFrame = frame.mapInArrow(_named(make(tracking), name), schema)
            return made if deterministic or tracking is None else stored(made)

        return TrackedFrame(Node((self._node,), build), self._options, self._previews)

    def _check_namespace(self, other: TrackedFrame) -> None:
        mine, theirs = self._options.acker, other._options.acker
        if (mine.namespace, mine.urls) != (theirs.namespace, theirs.urls):
            raise BadFrame(f"Both frames must be tracked in one namespace, not in {mine} and {theirs}.")


@dataclass(frozen=True)
class GroupedFrame:
    """Rows in groups, to be aggregated."""

    frame: TrackedFrame
    keys: tuple[str, ...]

    def agg(self, *columns: Column) -> TrackedFrame:
        """One row for each group. It stands for every message that went into it: they are complete when it has been
        written, and if it fails in a later step, just these messages fail."""
        grouping = Grouping(self.keys)

        def build(frames: Any, _: Tracking | None) -> DataFrame:
            made: DataFrame = frames[0].groupBy(*self.keys).agg(*columns)
            return made.withColumn(COLUMN, grouping.key())

        return self.frame._then(None, build, grouping)


def _stored_if_unstable(build: Build) -> Build:
    """Stores what a step made if Spark knows that it may give something else when a part of it is run again."""

    def checked(frames: Any, tracking: Tracking | None) -> DataFrame:
        made = build(frames, tracking)
        if tracking is None or is_deterministic(made) or not all(map(is_deterministic, frames)):
            return made
        return stored(made)

    return checked


def _fields(schema: Schema) -> StructType:
    try:
        fields = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    except Exception as error:
        raise BadFrame(f"{schema!r} is no schema, such as 'word string, count long': {error}") from error
    if not isinstance(fields, StructType):
        raise BadFrame(
            f"The schema of a step is a text such as 'word string, count long', or a StructType, not {schema!r}."
        )
    for name in fields.names:
        _not_reserved(name)
    return fields


def _not_reserved(name: str) -> str:
    if name.lower() == COLUMN.lower():
        raise BadFrame(f"{COLUMN!r} is the name of the tracking column: choose another.")
    return name


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _named(step: Any, name: str) -> Callable[..., Any]:
    """The step as a function that Spark shows under its name."""

    def call(batches: Any) -> Any:
        return step(batches)

    call.__name__ = name
    return call
