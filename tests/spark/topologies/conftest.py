"""Fixtures: a store, a notebook that executors reach too, and a way to run topologies on the shared session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from redis_acker import Acker, DeadLetters, Observer, Topology
from redis_acker.retries.book import DeadLetter
from redis_acker.store.message_ids import MessageId
from spark_integration.topologies.runner import SparkRunner
from tests.backends import Servers, make_backend
from tests.spark.topologies.parts import QUICK, Notebook
from tests.waiting import wait_until


@dataclass
class Bench(Observer):
    """Runs topologies, and counts how often each message was completed."""

    spark: SparkSession
    acker: Acker
    notebook: Notebook

    def __post_init__(self) -> None:
        self.completed: list[MessageId] = []

    def on_complete(self, message_id: MessageId, latency_ms: int) -> None:
        self.completed.append(message_id)

    def runner(self, topology: Topology, **options: Any) -> SparkRunner:
        return SparkRunner(topology, self.acker, self.spark, **{"retries": QUICK, "observer": self, **options})

    def run(self, topology: Topology, **options: Any) -> SparkRunner:
        """Runs until every message is completed or dead."""
        with self.runner(topology, **options) as runner:
            assert runner.wait_until_idle(timeout_s=180)
        return runner

    def run_until_executed(self, topology: Topology, bolt: str, tuples: int) -> None:
        """Runs until a bolt has worked on so many tuples, whatever became of them."""
        with self.runner(topology) as runner:
            wait_until(lambda: runner.counters()[bolt].executed >= tuples, timeout_s=60)

    def books(self) -> tuple[int, int, int, int]:
        """Roots of all spouts: completed, failed, timed out, pending."""
        spouts = self.acker.stats().spouts
        return (
            sum(one.completed for one in spouts),
            sum(one.failed for one in spouts),
            sum(one.timeout for one in spouts),
            sum(one.pending for one in spouts),
        )

    def strays(self) -> int:
        """Acks that were not for a pending root, or came twice."""
        return sum(shard.late + shard.duplicates for shard in self.acker.stats().shards)

    def letters(self) -> list[DeadLetter]:
        return sorted(DeadLetters(self.acker), key=lambda letter: str(letter.message_id))


@pytest.fixture
def timeout_ms() -> int:
    return 30_000


@pytest.fixture
def bench(spark: SparkSession, servers: Servers, namespace: str, timeout_ms: int) -> Iterator[Bench]:
    backend = make_backend("redis-7.0", servers)
    assert isinstance(backend.target, str)
    with Acker(backend.target, namespace=namespace, timeout_ms=timeout_ms, shards=2) as acker:
        yield Bench(spark, acker, Notebook(backend.target, f"{namespace}:notes"))
    backend.delete_keys(namespace)
