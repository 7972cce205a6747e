"""Trees that cross streaming queries: one hands its rows over with their anchors, another takes them in."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyspark.sql import Row, SparkSession

from redis_acker import Acker, DeadLetters, RetryPolicy
from redis_acker.errors import BadInput
from redis_acker.store.message_ids import id_to_text
from spark_integration import BadFrame, StreamJob, TrackedQuery, register, track_stream
from tests.backends import Servers
from tests.cli.runs import redis_acker
from tests.spans import Spans, is_failed, spans
from tests.spark.streams.conftest import MakeStream
from tests.spark.streams.feed import SPOUT, Feed
from tests.waiting import wait_until

__all__ = ["spans"]

pytestmark = pytest.mark.full

ITEMS = "number long, item long"
SECOND = "doubling"

Between = Callable[[pa.RecordBatch], None]
Second = Callable[..., TrackedQuery]


def twice(row: Row) -> Iterator[tuple[int, int]]:
    """Each message becomes two rows."""
    yield from ((row.number, item) for item in range(2))


@pytest.fixture
def server(servers: Servers) -> str:
    return servers.get("redis-7.0").url


@pytest.fixture
def name(namespace: str, server: str) -> Iterator[str]:
    """Of the Redis Stream between both queries."""
    yield f"{namespace}-between"
    with redis.Redis.from_url(server) as client:
        for key in client.scan_iter(f"*{namespace}-between*"):
            client.delete(key)


@pytest.fixture
def between(server: str, name: str) -> Between:
    """A sink that adds rows to the stream, with their anchors."""

    def write(batch: pa.RecordBatch) -> None:
        with redis.Redis.from_url(server) as client, client.pipeline() as pipeline:
            for row in batch.to_pylist():
                pipeline.xadd(name, row)
            pipeline.execute()

    return write


@pytest.fixture
def second(spark: SparkSession, acker: Acker, server: str, name: str, tmp_path: Path) -> Iterator[Second]:
    """second(function) is a query over the rows in the stream, each of which function gets."""
    running: list[TrackedQuery] = []

    def start(
        function: Callable[[Row], Any], *, checkpoint: str = "second", release: str = "committed"
    ) -> TrackedQuery:
        register(spark, url=server)
        options = {"stream": name, "release": release}
        schema = "number string, item string, anchors binary"
        frame = spark.readStream.format("redis_acker").options(**options).schema(schema).load()
        stream = track_stream(frame, acker=acker, name=SECOND, anchors="anchors")
        numbers = stream.map(lambda row: (int(row.number), int(row.item)), ITEMS, name="numbers")
        running.append(numbers.sink(function, per="row").start(checkpoint=str(tmp_path / checkpoint)))
        return running[-1]

    yield start
    for query in running:
        query.stop()


def first_of(stream: MakeStream, between: Between, **options: Any) -> StreamJob:
    return stream(**options).flat_map(twice, ITEMS, name="twice").sink(between, anchors="anchors")


def completed(acker: Acker) -> tuple[int, int]:
    [found] = [one for one in acker.stats().spouts if one.name == SPOUT]
    return found.completed, found.pending


def kept_rows(acker: Acker) -> list[str]:
    """Of which messages the store keeps the rows."""
    rows = acker.shards.failed_rows(f"stream {acker.spout_number(SPOUT)}")
    return [name.decode() for name, _ in rows.items()]


def test_messages_are_complete_when_the_second_query_is_done_with_their_rows(
    stream: MakeStream, acker: Acker, feed: Feed, between: Between, second: Second
) -> None:
    feed.put("one.json", range(20))
    with first_of(stream, between).start(checkpoint=feed.checkpoint) as first:
        wait_until(lambda: first.counters.batches == 1, 120)
        assert completed(acker) == (0, 20)
        assert sorted(kept_rows(acker)) == sorted(id_to_text(f"m{n}") for n in range(20))
        query = second(feed.sink)
        wait_until(lambda: first.counters.completed == 20, 120)

    assert completed(acker) == (20, 0)
    assert kept_rows(acker) == []
    assert feed.sunk() == dict.fromkeys(range(20), 2)
    assert (query.counters.messages, query.counters.completed, query.counters.failed) == (40, 40, 0)
    assert first.counters.p50_ms is not None  # though they were completed when their micro-batch was over


def test_a_row_that_fails_in_the_second_query_comes_again_from_the_first(
    stream: MakeStream, acker: Acker, feed: Feed, between: Between, second: Second
) -> None:
    mark, sink = feed.directory / "failed", feed.sink

    def fail_once(row: Row) -> None:
        if (row.number, row.item) == (7, 1) and not mark.exists():
            mark.touch()
            raise ValueError("not yet")
        sink(row)

    feed.put("one.json", range(20))
    second(fail_once)
    with first_of(stream, between).start(checkpoint=feed.checkpoint) as first:
        wait_until(lambda: first.counters.completed == 20 and first.counters.waiting == 0, 120)
        found = first.counters

    assert (found.failed, found.retried, found.dead) == (1, 1, 0)
    assert kept_rows(acker) == []
    sunk = feed.sunk()
    assert {number: count for number, count in sunk.items() if count != 2} in ({}, {7: 3})
    assert len(sunk) == 20


def test_a_message_is_in_one_trace_through_both_queries_with_the_failure_marked(
    stream: MakeStream, feed: Feed, between: Between, second: Second, spans: Spans
) -> None:
    def refuse(row: Row) -> None:
        if row.number == 0:
            raise ValueError("never")

    feed.put("one.json", range(10))
    query = second(refuse)
    policy = RetryPolicy(max_attempts=1)
    with first_of(stream, between, retries=policy).start(checkpoint=feed.checkpoint) as first:
        wait_until(lambda: first.counters.dead == 1 and query.counters.failed == 2, 120)

    run, *_ = spans.named("run numbers")
    in_trace = [span for span in spans.all() if span.context.trace_id == run.context.trace_id]
    assert {span.parent.span_id for span in in_trace if span.parent} == {run.context.span_id}
    assert {span.status.description for span in in_trace if is_failed(span)} == {"ValueError: never"}
    assert {span.name for span in in_trace} == {"run numbers", SECOND}


def test_what_keeps_failing_in_the_second_query_is_a_dead_letter_of_the_first_with_its_row(
    stream: MakeStream, acker: Acker, feed: Feed, between: Between, second: Second
) -> None:
    sink = feed.sink

    def refuse(row: Row) -> None:
        if row.number == 7:
            raise ValueError("never")
        sink(row)

    feed.put("one.json", range(10))
    second(refuse)
    policy = RetryPolicy(max_attempts=2, first_ms=0)
    with first_of(stream, between, retries=policy).start(checkpoint=feed.checkpoint) as first:
        wait_until(lambda: first.counters.completed == 9 and first.counters.dead == 1, 120)

    [letter] = DeadLetters(acker, spout=SPOUT)
    assert letter.message_id == "m7"
    assert letter.payload == [{"id": "m7", "number": 7}]
    assert [(one.attempt, one.component, one.error) for one in letter.history] == [
        (attempt, "refuse", "ValueError: never") for attempt in (1, 2)
    ]
    assert kept_rows(acker) == []


def test_a_row_that_kills_the_worker_of_the_second_query_fails_its_message_alone_and_the_query_goes_on(
    stream: MakeStream, acker: Acker, feed: Feed, between: Between, second: Second
) -> None:
    sink = feed.sink

    def kill(row: Row) -> None:
        if row.number == 7:
            os._exit(1)
        sink(row)

    feed.put("one.json", range(40))
    query = second(kill)
    policy = RetryPolicy(max_attempts=2, first_ms=0)
    with first_of(stream, between, retries=policy).start(checkpoint=feed.checkpoint) as first:
        wait_until(lambda: (first.counters.completed, first.counters.dead) == (39, 1) or query.last_error, 240)
        assert query.last_error is None

    [letter] = DeadLetters(acker, spout=SPOUT)
    assert (letter.message_id, letter.payload) == ("m7", [{"id": "m7", "number": 7}])
    assert {(one.component, one.error.partition(":")[0]) for one in letter.history} == {
        (SECOND, "its worker died of it, alone with it in a job")
    }
    assert set(feed.sunk()) == set(range(40)) - {7}


def test_a_failure_that_comes_after_the_first_query_was_stopped_is_brought_again_by_its_next_start(
    stream: MakeStream, acker: Acker, feed: Feed, between: Between, second: Second
) -> None:
    mark, sink = feed.directory / "failed", feed.sink

    def fail_once(row: Row) -> None:
        if row.number == 7 and not mark.exists():
            mark.touch()
            raise ValueError("not yet")
        sink(row)

    feed.put("one.json", range(10))
    with first_of(stream, between).start(checkpoint=feed.checkpoint) as first:
        wait_until(lambda: first.counters.batches == 1, 120)
    second(fail_once)
    wait_until(lambda: completed(acker) == (9, 0), 120)
    assert kept_rows(acker) != []
    with first_of(stream, between).start(checkpoint=feed.checkpoint) as first:
        wait_until(lambda: completed(acker) == (10, 0), 120)
        wait_until(lambda: first.counters.waiting == 0, 120)
    assert kept_rows(acker) == []


def test_failures_that_were_drained_are_replayed_into_the_running_query(
    stream: MakeStream, acker: Acker, feed: Feed, between: Between, second: Second, server: str
) -> None:
    """`redis-acker replay` gives no row: the query has kept it."""
    feed.put("one.json", range(10))
    with first_of(stream, between).start(checkpoint=feed.checkpoint) as first:
        wait_until(lambda: first.counters.batches == 1, 120)
    [root] = [one.root for one in acker.pending(spout=SPOUT) if one.message_id == "m7"]
    acker.fail(root, component="billing", error="not yet")
    call = partial(redis_acker, REDIS_ACKER_URL=server, REDIS_ACKER_NAMESPACE=acker.namespace)
    file = feed.directory / "failed.jsonl"
    drained = call("drain", "--out", str(file))
    assert drained.returncode == 0, drained.stderr

    with first_of(stream, between).start(checkpoint=feed.checkpoint) as first:
        replayed = call("replay", str(file))
        assert (replayed.returncode, replayed.stdout) == (0, "1 message goes back to the source.\n"), replayed.stderr
        expected = {(f"m{n}", 2 if n == 7 else 1) for n in range(10)}
        wait_until(lambda: {(one.message_id, one.attempt) for one in acker.pending(spout=SPOUT)} == expected, 120)
        assert first.counters.retried == 1
        second(feed.sink)
        wait_until(lambda: completed(acker) == (10, 0) and first.counters.waiting == 0, 120)
    assert kept_rows(acker) == []
    assert set(feed.sunk()) == set(range(10))


def test_rows_that_the_transport_brings_twice_are_done_once(
    stream: MakeStream, acker: Acker, feed: Feed, between: Between, second: Second
) -> None:
    """A new checkpoint reads the whole stream again."""
    feed.put("one.json", range(10))
    with first_of(stream, between).start(checkpoint=feed.checkpoint) as first:
        wait_until(lambda: first.counters.batches == 1, 120)
        before = second(feed.sink, release="never")
        wait_until(lambda: completed(acker) == (10, 0), 120)
        with pytest.raises(BadInput, match="A query 'doubling' runs in this session already"):
            second(feed.sink, checkpoint="again")
        before.stop()
        again = second(feed.sink, checkpoint="again", release="never")
        wait_until(lambda: again.counters.messages == 20, 120)
    assert feed.sunk() == dict.fromkeys(range(10), 2)
    assert completed(acker) == (10, 0)


def test_rows_are_handed_over_as_they_came_in(stream: MakeStream, between: Between) -> None:
    with pytest.raises(BadFrame, match=r"sink\(anchors=\) of a stream keeps rows as they came in"):
        stream().select("number").sink(between, anchors="anchors")
    with pytest.raises(BadFrame, match="for jobs without a shuffle"):
        stream().repartition(2).sink(between, anchors="anchors")


def test_a_stream_has_messages_of_its_own_or_of_others(stream: MakeStream) -> None:
    with pytest.raises(BadFrame, match="either message_id="):
        stream(anchors="number")
    with pytest.raises(BadFrame, match=r"track\(anchors=\) needs name="):
        stream(message_id=None, anchors="number")
