"""A topology as a job of the test cluster: sentences -> split -> count, with faults in both bolts. count logs what it
was given, beside the product and before it is acked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from redis_acker import Acker, BasicBolt, OutputCollector, RetryPolicy, TaskContext, Tuple
from redis_acker.components.tuples import Edges
from redis_acker.topology.routing import task_of_key
from spark_integration.topologies.acks import TaskAcks
from spark_integration.topologies.runner import SparkRunner
from tests.spark.jobs.faults import FIRST_DONE, SECOND_BEGUN, SECOND_DONE, Faults, InjectedFault
from tests.spark.topologies.parts import builder_of, die
from tests.waiting import wait_until

WORDS = [next(word for word in map(str, range(99)) if task_of_key([word], 2) == task) for task in (0, 1)]
"""A word for each task of count."""

HOST_VARIABLE = "SPARK_LOCAL_IP"

CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum"
"""With it a newer Spark knows that the second run of a stage has written something else, and runs its readers again."""


ACKED = "acked"
"""A task of split has sent its acks. One that is told to fail there dies with its Python worker."""


@dataclass
class Split(BasicBolt):
    """Its two tasks wait for each other, so that each is on an executor of its own."""

    faults: Faults
    random_edges: bool
    is_random: bool
    """Whether every run emits other values."""
    fields = ("word", "number", "run")

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        if self.random_edges:
            collector._new_edge = Edges()
        TaskAcks.send = self._sending()  # type: ignore[method-assign]

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        run = uuid4().hex if self.is_random else ""
        for word in WORDS:
            emit(word, tup["value"], run)

    def cleanup(self) -> None:
        self.faults.reached(FIRST_DONE)
        with suppress(AssertionError):  # on a slow machine the first micro-batch may hold but one message
            wait_until(lambda: len(set(self.faults.arrivals(FIRST_DONE))) > 1, timeout_s=10)

    def _sending(self) -> Callable[..., None]:
        def send_and_tell(acks: TaskAcks, **options: bool) -> None:
            _send(acks, **options)
            try:
                self.faults.reached(ACKED)
            except InjectedFault:
                die()

        return send_and_tell


_send = TaskAcks.send


@dataclass
class Count(BasicBolt):
    """Its second task waits for the first, and then for what the test does."""

    faults: Faults

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        TaskAcks.send = _send  # type: ignore[method-assign]
        self.task, self.given = context.task, list[tuple[Any, ...]]()

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        self.given.append(tup.values)

    def cleanup(self) -> None:
        draft = Path(self.faults._directory, f"draft {uuid4().hex}")
        draft.write_text(json.dumps(self.given))
        draft.rename(draft.with_suffix(".counted"))
        if self.task == 0:
            self.faults.reached(SECOND_DONE)
            return
        wait_until(lambda: self.faults.arrivals(SECOND_DONE), timeout_s=60)
        Path(self.faults._directory, f"held on {os.environ[HOST_VARIABLE]}").write_text(str(os.getpid()))
        self.faults.reached(SECOND_BEGUN)


def run(spark: SparkSession, settings: dict[str, Any]) -> dict[str, Any]:
    """Runs the messages to their end, or with random edges once through both bolts."""
    faults, messages = Faults(settings["directory"], settings["plan"]), settings["messages"]
    for name in ("enabled", "enableFullRetryOnMismatch", "enableQueryLevelRollbackOnMismatch"):
        spark.conf.set(f"{CHECKSUM}.{name}", str(settings["checksum"]).lower())
    builder = builder_of(range(messages))
    split = Split(faults, settings["random_edges"], settings["is_random"])
    builder.bolt("split", split, parallelism=2).shuffle("source")
    builder.bolt("count", Count(faults), parallelism=2).fields("split", "word")
    timeout_ms = 3_000 if settings["is_random"] else None
    with Acker(settings["url"], namespace=settings["namespace"], timeout_ms=timeout_ms) as acker:
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
        "duplicates": sum(shard.duplicates for shard in shards),
        "executed": runner.counters()["count"].executed,
    }
