"""How a tracked frame ends: what its sinks are, and how the job runs with each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter, Row
from pyspark.sql import functions as F

from spark_integration.errors import BadFrame
from spark_integration.frames import checks
from spark_integration.frames.anchored import run_anchored
from spark_integration.frames.fused import FusedPlan, run_fused
from spark_integration.frames.job import PlanNode, run_job
from spark_integration.frames.sinks import Per, Sink
from spark_integration.frames.steps import COUNT_SCHEMA
from spark_integration.frames.tracked_steps import PartitionSink, TrackedSink, write_partitions
from spark_integration.runs.deliveries import Deliveries
from spark_integration.runs.failing import Tracking
from spark_integration.runs.life import RunOptions
from spark_integration.runs.summary import Summary
from spark_integration.runs.tracking import COLUMN
from spark_integration.workers import map_in_workers


def sink_of(
    function: Callable[[Any], object],
    per: Per,
    concurrency: int,
    sink_timeout_s: float,
    name: str | None,
    anchors: str | None,
) -> Sink:
    """What sink() of a frame or a stream was told. Raises BadFrame for what cannot be."""
    checks.check_sink(function, per, concurrency, sink_timeout_s)
    return Sink(name or checks.name_of(function), function, per, concurrency, sink_timeout_s, anchors)


def run_sink(node: PlanNode, preview: Callable[[], DataFrame], options: RunOptions, sink: Sink) -> Summary:
    """preview gives the frame outside any run, where a function that cannot be sent to workers is refused before
    anything begins. A fused run makes no use of it."""
    if sink.per == "partition":
        map_in_workers(preview(), PartitionSink(sink.name, sink.function, None), COUNT_SCHEMA, name=sink.name)
        return run_job(node, options, partial(write_partitions, name=sink.name, function=sink.function))
    if plan := FusedPlan.of(node):
        if isinstance(plan.messages, Deliveries):
            return run_anchored(plan.messages, plan, options, sink)
        return run_fused(plan.messages, plan, options, sink)

    def write(frame: DataFrame, tracking: Tracking | None) -> None:
        counts = map_in_workers(frame, TrackedSink(sink, tracking), COUNT_SCHEMA, name=sink.name)
        if tracking is not None:
            counts.agg(F.sum("rows")).collect()

    write(preview(), None)
    return run_job(node, options, write)


def run_write(node: PlanNode, options: RunOptions, save: Callable[[DataFrameWriter], object]) -> Summary:
    def write(frame: DataFrame, tracking: Tracking) -> None:
        if isinstance(save(frame.drop(COLUMN).write), DataFrameWriter):
            raise BadFrame("Nothing was written: end with a call that writes, such as writer.parquet(path).")

    return run_job(node, options, write, is_sink_native=True)


def run_collect(node: PlanNode, options: RunOptions) -> tuple[list[Row], Summary]:
    rows: list[Row] = []

    def write(frame: DataFrame, tracking: Tracking) -> None:
        rows.extend(frame.drop(COLUMN).collect())

    return rows, run_job(node, options, write, is_sink_native=True)
