"""What a query has counted, beside what Spark says of it, and how long messages take from their arrival."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker
from spark_integration import BadFrame, TrackedStream, track_stream
from tests.spark.streams.conftest import AT_ONCE, MakeStream
from tests.spark.streams.feed import NOW, SCHEMA, SPOUT, Feed
from tests.waiting import wait_until

HOUR_MS = 3_600_000
ARRIVAL = "id string, number long, at long"


def fail_three(row: Row) -> Row:
    if row.number == 3:
        raise ValueError("three")
    return row


def test_progress_of_spark_comes_with_the_counters(stream: MakeStream, feed: Feed) -> None:
    """Of this query and no other, and until it has ended."""
    feed.put("one.json", range(10))
    feed.put("two.json", range(10, 30))
    told: list[dict[str, Any]] = []
    others = stream("others").sink(lambda batch: None)
    job = stream().map(fail_three, SCHEMA).sink(feed.sink, per="row")
    with others.start(checkpoint=str(feed.directory / "others")) as other:
        query = job.start(checkpoint=feed.checkpoint, trigger=NOW, on_progress=told.append)
        assert query.wait(120)
        wait_until(lambda: other.counters.completed == 30, 120)
    wait_until(lambda: "exception" in told[-1], 60)

    assert {one["id"] for one in told} == {str(query.query.id)}
    batches = [one for one in told if "batchId" in one]
    assert [(one["batchId"], one["numInputRows"]) for one in batches] == [(0, 10), (1, 20)]
    assert batches[0]["redis_acker"]["batches"] >= 1  # events come a little later
    assert batches[1]["redis_acker"]["batches"] == 2
    assert batches[1]["redis_acker"]["completed"] == 29
    assert batches[1]["redis_acker"]["failed"] >= 1
    assert told[-1]["exception"] is None
    assert query.progress["batchId"] == 1
    assert query.progress["redis_acker"]["completed"] == 29


def test_a_function_that_raises_does_not_disturb_the_query(
    stream: MakeStream, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    feed.put("one.json", range(10))

    def refuse(progress: dict[str, Any]) -> None:
        raise ValueError("no")

    query = stream().sink(feed.sink, per="row").start(checkpoint=feed.checkpoint, trigger=NOW, on_progress=refuse)
    assert query.wait(120)
    wait_until(lambda: "The on_progress function of query" in caplog.text, 60)
    assert query.counters.completed == 10


@pytest.fixture
def arriving(spark: SparkSession, acker: Acker, feed: Feed) -> TrackedStream:
    """Nine messages of an hour ago and one that does not say when it came."""
    at = int(time.time() * 1000) - HOUR_MS
    feed.put_rows("one.json", ({"id": f"m{n}", "number": n, "at": at if n else None} for n in range(10)))
    frame = spark.readStream.schema(ARRIVAL).json(str(feed.input))
    return track_stream(frame, acker=acker, spout=SPOUT, message_id="id", retries=AT_ONCE, arrival="at")


def test_latency_is_taken_from_the_arrival_of_a_message(arriving: TrackedStream, feed: Feed) -> None:
    query = arriving.sink(feed.sink, per="row").start(checkpoint=feed.checkpoint, trigger=NOW)
    assert query.wait(120)
    found = query.counters
    assert found.completed == 10
    assert found.p50_ms is not None
    assert HOUR_MS <= found.p50_ms < 2 * HOUR_MS


def test_latency_counts_messages_that_were_tried_again_and_not_those_that_failed(
    arriving: TrackedStream, feed: Feed
) -> None:
    """All but one fail at first; the one that does not says nothing of its arrival, so that only retries count."""
    seen = feed.directory

    def fail_once(row: Row) -> None:
        if row.number and not (seen / f"seen {row.number}").exists():
            (seen / f"seen {row.number}").touch()
            raise ValueError("at first")

    with arriving.sink(fail_once, per="row").start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: query.counters.batches == 1 or query.last_error, 120)
        wait_until(lambda: query.counters.completed == 10 or query.last_error, 120)
        assert query._arrivals.counts.value.total() == 9  # type: ignore[attr-defined]
        assert query.counters.p99_ms is not None


def test_a_timestamp_says_when_a_message_has_arrived_too(spark: SparkSession, acker: Acker, feed: Feed) -> None:
    feed.put("one.json", range(10))
    hour = F.expr("INTERVAL 1 HOUR")
    frame = spark.readStream.schema(SCHEMA).json(str(feed.input)).withColumn("at", F.current_timestamp() - hour)
    stream = track_stream(frame, acker=acker, spout=SPOUT, message_id="id", arrival="at")
    query = stream.sink(feed.sink, per="row").start(checkpoint=feed.checkpoint, trigger=NOW)
    assert query.wait(120)
    assert query.counters.p50_ms is not None
    assert HOUR_MS <= query.counters.p50_ms < 2 * HOUR_MS


def test_what_cannot_measure_is_refused(stream: MakeStream, arriving: TrackedStream) -> None:
    with pytest.raises(BadFrame, match="There is no column 'when' for the time of arrival; there are id, number"):
        stream(arrival="when")
    with pytest.raises(BadFrame, match="'id' for the time of arrival is string: it has to be a timestamp"):
        stream(arrival="id")
    with pytest.raises(BadFrame, match="arrival= is for jobs without a shuffle that end in sink"):
        arriving.repartition(2).sink(lambda batch: None)
    with pytest.raises(BadFrame, match="whose rows have the column 'at' when they come to the first Python step"):
        arriving.select("id").sink(lambda batch: None)
    with pytest.raises(BadFrame, match=r"arrival= does not go with sink\(anchors=\)"):
        arriving.sink(lambda batch: None, anchors="anchors")
