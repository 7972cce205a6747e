"""Tracked streams: the steps of a tracked frame, recorded once and played on each micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Literal, ParamSpec

from pyspark.sql import Column, DataFrame, DataFrameWriter
from pyspark.sql.types import StructType

from redis_acker import Acker
from redis_acker.errors import BadInput
from redis_acker.retries.policy import RetryPolicy
from spark_integration.errors import BadFrame
from spark_integration.frames import checks
from spark_integration.frames.ending import sink_of
from spark_integration.frames.frame import TrackedFrame
from spark_integration.frames.repeatable import is_repeatable_stream
from spark_integration.frames.track import track
from spark_integration.runs.summary import Summary
from spark_integration.streams.anchored import AnchoredPlan
from spark_integration.streams.progress import OnProgress
from spark_integration.streams.query import StreamPlan
from spark_integration.streams.running import TrackedQuery
from spark_integration.streams.spout import Source
from spark_integration.workers import is_connect

MAX_WAITING = 10_000
"""Failed messages that may wait for their next attempt before the next micro-batch has to wait for them."""

P = ParamSpec("P")

Play = Callable[[TrackedFrame], TrackedFrame]
AnyPlan = StreamPlan | AnchoredPlan


def track_stream(
    frame: DataFrame,
    *,
    acker: Acker,
    spout: str | None = None,
    message_id: str | None = None,
    name: str | None = None,
    anchors: str | None = None,
    retries: RetryPolicy | None = None,
    source: Source | None = None,
    max_waiting: int = MAX_WAITING,
    arrival: str | None = None,
    **options: Any,
) -> TrackedStream:
    """Tracks the rows of a streaming frame: with message_id as messages of its own, with anchors as rows of others'.

    message_id: the column that names a row; one without a name becomes a dead letter. A message of the spout is
    complete when everything that steps make of it has reached the sink. If it fails it comes again, until it is
    complete or its last attempt has failed.
    anchors: the column of bytes in which another application handed its rows over, as for track(). What fails comes
    again from the spout of its message. name: what this query is called.
    retries: how often a message is tried, and the pauses between attempts.
    source: is told of messages that are complete or dead.
    max_waiting: while more failed messages than this wait for their next attempt, no micro-batch begins.
    arrival: the column that says when a message has arrived, a timestamp or milliseconds since 1970: the counters then
    say how long messages take from there. For jobs without a shuffle.
    options: further options of track().
    """
    if is_connect(frame.sparkSession):
        raise BadFrame("track_stream() needs a Spark session in this process: it does not work over Spark Connect.")
    if not frame.isStreaming:
        raise BadFrame(
            "track_stream() takes a streaming frame, from spark.readStream: this one has an end, use track()."
        )
    if refused := {"replays", "max_failures", "resume", "progress"} & options.keys():
        raise BadInput(f"track_stream() does not take {', '.join(sorted(refused))}: that is for track().")
    if type(max_waiting) is not int or max_waiting < 1:
        raise BadInput(f"max_waiting is a number of messages, 1 or more, not {max_waiting!r}.")
    checks.check_columns(frame)
    stable = options.pop("stable_source", None)
    stable = is_repeatable_stream(frame) if stable is None else stable
    are_own_options = bool(retries or source or max_waiting != MAX_WAITING or arrival)
    checks.check_kind(spout, message_id, name, anchors, are_own_options=are_own_options)
    empty = frame.sparkSession.createDataFrame([], frame.schema)
    kind: dict[str, Any] = {"spout": spout, "message_id": message_id, "name": name, "anchors": anchors}
    preview = track(empty, acker=acker, stable_source=True, **kind, **options)
    if anchors is not None:
        plan = AnchoredPlan(frame, acker, str(name), anchors, stable, options)
        return TrackedStream(plan, preview)
    checks.check_arrival(frame, arrival)
    told = str(spout), str(message_id), retries or RetryPolicy(), source, max_waiting, stable, options, arrival
    return TrackedStream(StreamPlan(frame, acker, *told), preview)


def _recorded(
    step: Callable[Concatenate[TrackedFrame, P], TrackedFrame],
) -> Callable[Concatenate[TrackedStream, P], TrackedStream]:
    """A step of a tracked frame as one of a stream: tried at once on a frame without rows, so that a mistake is
    reported where it is made, and played on each micro-batch."""

    def record(stream: TrackedStream, /, *args: P.args, **options: P.kwargs) -> TrackedStream:
        return stream._then(lambda frame: step(frame, *args, **options))

    record.__name__, record.__doc__ = step.__name__, step.__doc__
    return record


class TrackedStream:
    """A streaming DataFrame whose rows are tracked. Its steps are those of a tracked frame. start() runs it."""

    def __init__(self, plan: AnyPlan, preview: TrackedFrame, play: Play = lambda frame: frame) -> None:
        self._plan, self._preview, self._play = plan, preview, play

    @property
    def schema(self) -> StructType:
        return self._preview.schema

    @property
    def columns(self) -> list[str]:
        return self._preview.columns

    select = _recorded(TrackedFrame.select)
    with_column = _recorded(TrackedFrame.with_column)
    where = _recorded(TrackedFrame.where)
    explode = _recorded(TrackedFrame.explode)
    repartition = _recorded(TrackedFrame.repartition)
    order_by = _recorded(TrackedFrame.order_by)
    map = _recorded(TrackedFrame.map)
    flat_map = _recorded(TrackedFrame.flat_map)
    map_batches = _recorded(TrackedFrame.map_batches)

    def join(self, other: DataFrame, on: str | list[str] | Column, how: str = "inner") -> TrackedStream:
        """Rows of each micro-batch with those of a frame that is neither tracked nor streaming."""
        if not isinstance(other, DataFrame) or other.isStreaming:
            raise BadFrame(
                "A tracked stream joins a DataFrame that is not streaming: join two streams before tracking."
            )
        return self._then(lambda frame: frame.join(other, on, how))

    def group_by(self, *columns: str) -> GroupedStream:
        """Groups the rows of each micro-batch by columns."""
        self._preview.group_by(*columns)
        return GroupedStream(self, columns)

    def sink(
        self,
        function: Callable[[Any], object],
        *,
        per: Literal["row", "batch", "partition"] = "batch",
        concurrency: int = 1,
        sink_timeout_s: float = 600.0,
        name: str | None = None,
        anchors: str | None = None,
    ) -> StreamJob:
        """Hands rows to function in the executors, as TrackedFrame.sink() does. Nothing runs before start().

        anchors: hands the rows over to another application, as in TrackedFrame.sink(). The query keeps the row of each
        of its messages in the store until the message is complete or dead, to bring it again if it fails there.
        """
        sink, plan = sink_of(function, per, concurrency, sink_timeout_s, name, anchors), self._plan
        if anchors is not None:
            self._preview.check_leaving(anchors, per, as_they_came=isinstance(plan, StreamPlan))
            plan = replace(plan, hands_over=True) if isinstance(plan, StreamPlan) else plan
        is_fused = per != "partition" and self._preview.is_fused
        stream = TrackedStream(plan, self._preview, self._play)
        return stream._ends_with(lambda frame: frame.run_sink(sink), is_fused=is_fused)

    def write(self, save: Callable[[DataFrameWriter], object]) -> StreamJob:
        """Lets save(writer) write the rows of each micro-batch: stream.write(lambda writer: writer.mode("append")
        .parquet(path)). Nothing runs before start()."""
        return self._ends_with(lambda frame: frame.write(save), is_fused=False)

    def _then(self, step: Play) -> TrackedStream:
        before = self._play
        return TrackedStream(self._plan, step(self._preview), lambda frame: step(before(frame)))

    def _ends_with(self, sink: Callable[[TrackedFrame], Summary], *, is_fused: bool) -> StreamJob:
        play, plan = self._play, self._plan
        if isinstance(plan, StreamPlan) and plan.arrival is not None:
            columns = self._preview.columns_of_messages if is_fused else []
            checks.check_measured(plan.arrival, columns, hands_over=plan.hands_over)
        return StreamJob(replace(self._plan, run=lambda frame: sink(play(frame)), is_fused=is_fused))


@dataclass(frozen=True)
class GroupedStream:
    """Rows in groups, to be aggregated within each micro-batch."""

    stream: TrackedStream
    columns: tuple[str, ...]

    def agg(self, *columns: Column) -> TrackedStream:
        """One row for each group of a micro-batch. It stands for every message that went into it."""
        return self.stream._then(lambda frame: frame.group_by(*self.columns).agg(*columns))


@dataclass(frozen=True)
class StreamJob:
    """A tracked stream with its sink."""

    plan: AnyPlan

    def start(
        self,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        takes_over: bool = False,
        on_progress: OnProgress | None = None,
    ) -> TrackedQuery:
        """Starts the query. It goes on where it stopped or died under the same checkpoint.

        checkpoint: the directory in which Spark keeps how far it has come.
        trigger: options of Spark's trigger(): {"processingTime": "1 second"}, {"availableNow": True}.
        takes_over: the spout was that of another query, of another checkpoint, and is this one's from now on. What
        waits there for another attempt comes in this query.
        on_progress: is called, in a thread of its own, with each progress that Spark reports of the query, when it is
        idle, and when it has ended: with Spark's own dict, and what we have counted under 'redis_acker'.
        """
        query = self.plan.query()
        query.on_progress = on_progress
        return query.start(checkpoint, dict(trigger or {}), takes_over=takes_over)
