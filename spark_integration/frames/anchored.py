"""Jobs without a shuffle over rows that another application handed over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from redis_acker.store.edges import job_number
from spark_integration.frames.fused import FusedPlan, work_through
from spark_integration.frames.sinks import Sink
from spark_integration.frames.steps import Step
from spark_integration.runs.anchored import (
    COUNTS_SCHEMA,
    AnchoredBooks,
    AnchoredRun,
    AnchoredTask,
    Counts,
    traced_deliveries,
)
from spark_integration.runs.books import FailedPlaces
from spark_integration.runs.deliveries import Deliveries, Leaving
from spark_integration.runs.life import RunOptions
from spark_integration.runs.summary import Summary
from spark_integration.runs.traces import RunTrace
from spark_integration.workers import map_in_workers


def run_anchored(deliveries: Deliveries, plan: FusedPlan, options: RunOptions, sink: Sink) -> Summary:
    run = AnchoredRun(deliveries, options)
    with run, RunTrace(run.name, [run.job]) as trace:
        books = run.books(job_number(run.job), hands_over=sink.anchors is not None)
        made = map_in_workers(plan.whole, AnchoredSink(plan.steps, sink, books), COUNTS_SCHEMA, name=sink.name)
        total = Counts()
        for row in made.collect():
            total.add(Counts(row.rows, row.before, row.failed, [bytes(one) for one in row.traced]))
        trace.received(traced_deliveries(total))
        return trace.ended(run.summary(total))


@dataclass(frozen=True)
class AnchoredSink:
    """All Python of a job, as it runs in a worker."""

    steps: tuple[Step, ...]
    sink: Sink
    books: AnchoredBooks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = AnchoredTask(self.books, self.work).run(batches)
        schema = pa.schema(
            [("rows", pa.int64()), ("before", pa.int64()), ("failed", pa.int64()), ("traced", pa.list_(pa.binary()))]
        )
        yield pa.RecordBatch.from_pylist([vars(counts)], schema=schema)

    def work(self, batch: pa.RecordBatch, leaving: Leaving) -> FailedPlaces:
        return work_through(self.steps, self.sink, batch, leaving, is_replay=True)
