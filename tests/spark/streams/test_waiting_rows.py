"""Rows of another application that wait while others of their micro-batch are worked on: their messages stay alive."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from redis_acker import Acker, Anchors
from spark_integration import BadFrame, track_stream
from spark_integration.errors import JobFailed
from spark_integration.runs.portions import own_edges
from spark_integration.streams.anchored import roots_in
from spark_integration.streams.deaths import death_in
from tests.backends import Servers
from tests.spark.streams.feed import NOW, Feed
from tests.waiting import wait_until


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    """Its timeout is longer than a query needs to begin, and short enough to be waited for."""
    with Acker(servers.get("redis-7.0").url, namespace=namespace, timeout_ms=30_000) as acker:
        yield acker


def counted(acker: Acker, spout: str) -> tuple[int, int, int]:
    [found] = [one for one in acker.stats().spouts if one.name == spout]
    return found.completed, found.failed + found.timeout, found.pending


def hand_over(acker: Acker, feed: Feed, count: int) -> None:
    """Another application has sent rows, each with the anchors of a message of its own."""
    roots = acker.allocate("first", count)
    edges = own_edges(roots)
    acker.init(roots, edges, message_ids=list(range(count)))
    pairs = zip(roots.tolist(), edges.tolist(), strict=True)
    rows = {"number": range(count), "anchors": [Anchors({root: edge}).to_bytes() for root, edge in pairs]}
    pq.write_table(pa.table(rows), feed.input / "one.parquet")


def test_the_messages_to_keep_alive_are_each_found_once(spark: SparkSession) -> None:
    """Also if a row stands for several."""
    anchors = [{1: 5, 2**64 - 1: 6}, {2: 7}, {1: 8}]
    frame = spark.createDataFrame([(i, Anchors(one).to_bytes()) for i, one in enumerate(anchors)], "i int, a binary")
    assert roots_in(frame.repartition(3), "a").tolist() == [1, 2, 2**64 - 1]


def test_rows_that_cannot_be_read_to_keep_their_messages_alive_fail_with_an_error_of_ours(spark: SparkSession) -> None:
    """So it is told apart whether a worker died, and the micro-batch is done in smaller parts."""
    frame = spark.createDataFrame([(b"short",)], "a binary")
    with pytest.raises(BadFrame, match=r"b'short' in column 'a' is not"):
        roots_in(frame, "a")

    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    with pytest.raises(JobFailed) as died:
        roots_in(frame.mapInArrow(die, "a binary"), "a")
    assert "exited unexpectedly" in death_in(died.value)


@pytest.mark.full
def test_rows_that_wait_while_their_micro_batch_is_done_in_parts_do_not_time_out(
    spark: SparkSession, acker: Acker, feed: Feed
) -> None:
    """The first row kills its worker. In the first part without it a row takes longer than the timeout."""
    hand_over(acker, feed, 20)
    directory, sink = feed.directory, feed.sink

    def work(row: Row) -> None:
        if row.number == 0:
            os._exit(1)
        (directory / "waits").touch()
        wait_until((directory / "over").exists, 240)
        sink(row)

    frame = spark.readStream.schema("number long, anchors binary").parquet(str(feed.input))
    job = track_stream(frame, acker=acker, name="second", anchors="anchors").sink(work, per="row")
    with job.start(checkpoint=feed.checkpoint, trigger=NOW) as query:
        wait_until(lambda: (directory / "waits").exists() or not query.is_active, 120)
        acker.init(acker.allocate("canary"), [1], message_ids=["canary"])
        wait_until(lambda: counted(acker, "canary") == (0, 1, 0), 120)
        (directory / "over").touch()
        query.wait()

    assert counted(acker, "first") == (19, 1, 0)
    assert set(feed.sunk()) == set(range(1, 20))
