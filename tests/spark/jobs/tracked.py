"""The product under the scenarios: a tracked frame of two steps with a shuffle between them, sorted before its sink.

Some messages fail in the first step, some in the second. The points of tests.spark.jobs.faults are passed in the middle
of a task, when it has failed some of them already; a task that is told to fail there dies with its Python worker.
"""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, RetryPolicy
from spark_integration import TrackedFrame, track
from tests.spark.jobs.faults import FIRST_DONE, SECOND_BEGUN, SECOND_DONE, Faults, InjectedFault
from tests.spark.scenarios import Settings

SCHEMA = "id long, part int"
FIRST_BEGUN = "first begun"
SINK_BEGUN = "sink begun"

#: Small, so that every task has several batches.
BATCH_ROWS = 100

_passed: set[tuple[int, str]] = set()
"""Points that the tasks of this worker process have passed."""


def fails_in_first(number: int) -> bool:
    return number % 100 == 7


def fails_in_second(number: int) -> bool:
    return number % 100 == 42


def run(spark: SparkSession, settings: Settings) -> dict[str, Any]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    faults = Faults(settings["directory"], settings["plan"])
    with Acker(settings["url"], namespace=settings["namespace"]) as acker:
        frame = spark.range(settings["roots"], numPartitions=4)
        retries = RetryPolicy(max_attempts=1)
        tracked = track(frame, acker=acker, spout=settings["spout"], message_id="id", retries=retries)
        first, whole = _steps(tracked, faults)
        for _ in range(settings["looks"]):
            first.preview().count()
        summaries = [whole.sink(lambda batch: _sink(batch, faults)) for _ in range(settings["sinks"])]
    return {
        "completed": [summary.completed for summary in summaries],
        "failed": [sorted((one.message_id, one.step) for one in summary.failures) for summary in summaries],
    }


def _steps(tracked: TrackedFrame, faults: Faults) -> tuple[TrackedFrame, TrackedFrame]:
    def first(batch: pa.RecordBatch) -> pa.RecordBatch:
        _pass(faults, FIRST_BEGUN)
        if any(map(fails_in_first, batch["id"].to_pylist())):
            raise ValueError("told to fail")
        _pass(faults, FIRST_DONE, at=2)
        return batch

    def second(batch: pa.RecordBatch) -> pa.RecordBatch:
        _pass(faults, SECOND_BEGUN)
        if any(map(fails_in_second, batch["id"].to_pylist())):
            raise ValueError("told to fail")
        _pass(faults, SECOND_DONE, at=2)
        return batch

    after_first = tracked.with_column("part", F.explode(F.array(F.lit(1), F.lit(2)))).map_batches(first, SCHEMA)
    after_second = after_first.repartition(4, "id").map_batches(second, SCHEMA)
    return after_first, after_second.union(after_second.where("part = 1")).order_by("id")


def _sink(batch: pa.RecordBatch, faults: Faults) -> None:
    _pass(faults, SINK_BEGUN)


def _pass(faults: Faults, point: str, *, at: int = 1) -> None:
    """Passes a point once in each task: at the batch of this number."""
    context = TaskContext.get()
    assert context is not None
    place = context.taskAttemptId(), point
    _batches[place] = _batches.get(place, 0) + 1
    if _batches[place] < at or place in _passed:
        return
    _passed.add(place)
    try:
        faults.reached(point)
    except InjectedFault:
        os._exit(1)


_batches: dict[tuple[int, str], int] = {}
