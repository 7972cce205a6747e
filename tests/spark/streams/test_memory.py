"""What is left of a query in memory when it has ended: nothing."""

from __future__ import annotations

import gc
import time
import weakref

import pyarrow as pa
import pytest

from spark_integration import TrackedQuery
from spark_integration.errors import JobFailed
from tests.spark.streams.conftest import MakeStream
from tests.spark.streams.feed import Feed
from tests.waiting import wait_until


@pytest.mark.parametrize("in_batch", [False, True])
def test_nothing_of_a_query_is_left_in_memory_when_it_was_stopped(
    stream: MakeStream, feed: Feed, in_batch: bool
) -> None:
    """Java and Python would otherwise hold it together: neither sees that the other does."""
    feed.put("one.json", range(10))
    directory = feed.directory

    def sink(batch: pa.RecordBatch) -> None:
        if in_batch:
            (directory / "at work").touch()
            time.sleep(600)

    def start() -> weakref.ref[TrackedQuery]:
        query = stream().sink(sink).start(checkpoint=feed.checkpoint)
        wait_until(lambda: (directory / "at work").exists() if in_batch else query.counters.batches == 1, 120)
        query.stop()
        return weakref.ref(query)

    assert_is_gone(start())


@pytest.mark.parametrize("kind", ["sink", "write", "shuffle"])
def test_nothing_of_a_query_is_left_in_memory_when_it_has_failed(stream: MakeStream, feed: Feed, kind: str) -> None:
    feed.put("one.json", range(10))

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    def start() -> weakref.ref[TrackedQuery]:
        tracked = stream().where("raise_error('broken') is null")
        tracked = tracked.repartition(2) if kind == "shuffle" else tracked
        job = stream().write(fail) if kind == "write" else tracked.sink(feed.sink, per="row")
        query = job.start(checkpoint=feed.checkpoint)
        with pytest.raises(JobFailed, match="broken"):
            query.wait(120)
        return weakref.ref(query)

    assert_is_gone(start())


def assert_is_gone(query: weakref.ref[TrackedQuery]) -> None:
    def is_gone() -> bool:
        gc.collect()
        return query() is None

    wait_until(is_gone, 30)
