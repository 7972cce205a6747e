"""A topology as a job of the test cluster: sentences -> split -> count, with faults in both bolts."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from redis_acker import Acker, BasicBolt, OutputCollector, RetryPolicy, TaskContext, Tuple
from redis_acker.components.tuples import Edges
from redis_acker.topology.routing import task_of_key
from spark_integration.topologies.runner import SparkRunner
from tests.spark.jobs.faults import FIRST_DONE, SECOND_BEGUN, SECOND_DONE, Faults
from tests.spark.topologies.parts import builder_of
from tests.waiting import wait_until

WORDS = [next(word for word in map(str, range(99)) if task_of_key([word], 2) == task) for task in (0, 1)]
"""A word for each task of count."""

HOST_VARIABLE = "SPARK_LOCAL_IP"

CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum"
"""With it a newer Spark knows that the second run of a stage has written something else, and runs its readers again."""


@dataclass
class Split(BasicBolt):
    """Its two tasks wait for each other, so that each is on an executor of its own."""

    faults: Faults
    random_edges: bool
    fields = ("word",)

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        if self.random_edges:
            collector._new_edge = Edges()

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        for word in WORDS:
            emit(word)

    def cleanup(self) -> None:
        self.faults.reached(FIRST_DONE)
        with suppress(AssertionError):  # on a slow machine the first micro-batch may hold but one message
            wait_until(lambda: len(set(self.faults.arrivals(FIRST_DONE))) > 1, timeout_s=10)


@dataclass
class Count(BasicBolt):
    """Its second task waits for the first, and then for what the test does."""

    faults: Faults

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self.task = context.task

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        pass

    def cleanup(self) -> None:
        if self.task == 0:
            self.faults.reached(SECOND_DONE)
            return
        wait_until(lambda: self.faults.arrivals(SECOND_DONE), timeout_s=60)
        self.faults._touch(f"held on {os.environ[HOST_VARIABLE]}")
        self.faults.reached(SECOND_BEGUN)


def run(spark: SparkSession, settings: dict[str, Any]) -> dict[str, Any]:
    """Runs the messages to their end, or with random edges once through both bolts."""
    faults, messages = Faults(settings["directory"], settings["plan"]), settings["messages"]
    for name in ("enabled", "enableFullRetryOnMismatch", "enableQueryLevelRollbackOnMismatch"):
        spark.conf.set(f"{CHECKSUM}.{name}", str(settings["checksum"]).lower())
    builder = builder_of(range(messages))
    builder.bolt("split", Split(faults, settings["random_edges"]), parallelism=2).shuffle("source")
    builder.bolt("count", Count(faults), parallelism=2).fields("split", "word")
    with Acker(settings["url"], namespace=settings["namespace"]) as acker:
        retries = RetryPolicy(max_attempts=3, first_ms=1)
        with SparkRunner(builder.build(), acker, spark, retries=retries, wait_for_lease=True) as runner:
            if settings["random_edges"]:
                wait_until(lambda: runner.counters()["count"].executed >= 2 * messages, timeout_s=100)
            else:
                assert runner.wait_until_idle(timeout_s=110)
        [books] = acker.stats().spouts
        shards = acker.stats().shards
    return {
        "books": [books.completed, books.failed, books.timeout, books.pending],
        "strays": sum(shard.late + shard.duplicates for shard in shards),
        "executed": runner.counters()["count"].executed,
    }
