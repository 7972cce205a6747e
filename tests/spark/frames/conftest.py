"""A store, and frames to be tracked."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from redis_acker import Acker, RetryPolicy
from spark_integration import TrackedFrame, track
from tests.backends import Servers
from tests.clock import Clock
from tests.spark.frames.tasks import MakeRun, Run

#: Failed messages are tried again at once.
AT_ONCE = RetryPolicy(max_attempts=3, first_ms=0)

MakeFrame = Callable[..., TrackedFrame]


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    with Acker(servers.get("redis-7.0").url, namespace=namespace) as acker:
        yield acker


@pytest.fixture
def numbers(spark: SparkSession) -> Callable[[int], DataFrame]:
    """A frame of message ids m0, m1, ... with their numbers."""

    def make(count: int) -> DataFrame:
        rows = [(f"m{i}", i) for i in range(count)]
        return spark.createDataFrame(rows, "id string, number long").repartition(2)

    return make


@pytest.fixture
def tracked(acker: Acker, numbers: Callable[[int], DataFrame]) -> MakeFrame:
    """tracked(100) is a tracked frame of 100 messages; options are those of track()."""

    def make(count: int, spout: str = "numbers", **options: Any) -> TrackedFrame:
        defaults = {"retries": AT_ONCE, "stable_source": True}
        return track(numbers(count), acker=acker, spout=spout, message_id="id", **{**defaults, **options})

    return make


@pytest.fixture
def make_run(servers: Servers, namespace: str) -> Iterator[MakeRun]:
    """make_run(timeout_ms=500) is a run without Spark, whose tasks are attempts in this process. Blocks are small, so
    that every portion has several, on both shards. With clock=Clock() time passes only when it is told to."""
    opened: list[Acker] = []

    def make(*, url: str = "", timeout_ms: int = 30_000, clock: Clock | None = None, retry_for_s: float = 10) -> Run:
        def open_acker() -> Acker:
            opened.append(
                Acker(
                    url or servers.get("redis-7.0").url,
                    namespace=namespace,
                    shards=2,
                    block_size=8,
                    timeout_ms=timeout_ms,
                    clock=clock,
                    retry_for_s=retry_for_s,
                )
            )
            return opened[-1]

        return Run(open_acker(), open_acker)

    yield make
    for one in opened:
        one.close()
