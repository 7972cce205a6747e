"""Streams in operation: sources that are told, a store that is away, messages that fail whole jobs, kinds of jobs."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, DeadLetters, RetryPolicy
from redis_acker.driver.pausing import Switch
from redis_acker.retries.book import RetryBook
from redis_acker.store.message_ids import MessageId
from redis_acker.store.spout_states import SpoutStates
from redis_acker.views.overview import read_overview
from spark_integration import StreamCounters, StreamJob, track_stream
from spark_integration.runs.kept_rows import pack_rows, unpack_rows
from tests.backends import Keeper
from tests.metrics.scraping import Scrape
from tests.servers import start_server
from tests.spark.streams.conftest import AT_ONCE, MakeStream
from tests.spark.streams.feed import NOW, SCHEMA, SPOUT, Feed
from tests.waiting import wait_until


def run(job: StreamJob, checkpoint: str, **options: Any) -> StreamCounters:
    query = job.start(checkpoint=checkpoint, trigger=NOW, **options)
    assert query.wait(120)
    return query.counters


class Told:
    """A source that notes what is finished."""

    def __init__(self) -> None:
        self.ids: list[MessageId] = []

    def finish(self, message_ids: Sequence[MessageId]) -> None:
        self.ids += message_ids


def fail_three(row: Row) -> Row:
    if row.number == 3:
        raise ValueError("three")
    return row


def test_a_source_is_told_of_every_message_that_is_complete_or_dead(
    stream: MakeStream, acker: Acker, feed: Feed
) -> None:
    feed.put("one.json", range(100))
    told = Told()
    with (
        stream(source=told).map(fail_three, SCHEMA).sink(lambda batch: None).start(checkpoint=feed.checkpoint) as query
    ):
        wait_until(lambda: query.counters.dead == 1 and query.counters.completed == 99, 120)

    assert sorted(map(str, told.ids)) == sorted(f"m{n}" for n in range(100))
    assert len(DeadLetters(acker, spout=SPOUT)) == 1
    metrics = Scrape.direct(acker)
    counted = {"initialised": 102, "replayed": 2, "completed": 99, "failed": 3, "buried": 1, "micro_batches": 1}
    assert {name: metrics.total(f"{name}_total", spout=SPOUT) for name in counted} == counted
    assert metrics.total("component_failed_total", component="fail_three") == 3
    assert (metrics.total("pending"), metrics.total("retries"), metrics.total("dead_letters")) == (0, 0, 1)


def test_a_source_is_told_again_if_it_could_not_listen(stream: MakeStream, feed: Feed) -> None:
    feed.put("one.json", range(10))

    class Deaf(Told):
        def finish(self, message_ids: Sequence[MessageId]) -> None:
            if not self.ids:
                self.ids = ["was deaf"]
                raise ConnectionError("not now")
            super().finish(message_ids)

    deaf = Deaf()
    with stream(source=deaf).sink(lambda batch: None).start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: len(set(deaf.ids)) == 11 or query.last_error, 120)
    assert query.last_error is None


@pytest.mark.parametrize("kind", ["columns", "shuffle", "write", "group", "partition"])
def test_every_kind_of_job_brings_its_failed_messages_again(
    stream: MakeStream, acker: Acker, feed: Feed, kind: str
) -> None:
    """The rows of failed messages are found in the micro-batch where no worker has them as they came in."""
    feed.put("one.json", range(50))
    directory = feed.directory

    def strict(row: Row) -> Row:
        if row.number % 10 == 3 and not (directory / "mended").exists():
            raise ValueError("three")
        return row

    tracked = stream(retries=RetryPolicy(max_attempts=1000, first_ms=10, longest_ms=50))
    tracked = tracked.with_column("number", F.col("number") + 0) if kind == "columns" else tracked
    tracked = tracked.repartition(2) if kind == "shuffle" else tracked
    stepped = tracked.map(strict, SCHEMA)
    if kind == "group":
        stepped = stepped.group_by("id").agg(F.max("number").alias("number"))
    if kind == "write":
        job = stepped.write(lambda writer: writer.mode("append").json(str(directory / "out")))
    elif kind == "partition":
        job = stepped.sink(lambda batches: sink_all(feed, batches), per="partition")
    else:
        job = stepped.sink(feed.sink, per="row")

    with job.start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: query.counters.batches == 1 or query.last_error, 120)
        assert query.counters.waiting == 5
        assert all(retry.payload for retry in RetryBook(acker, SPOUT).load().values())
        (directory / "mended").touch()
        wait_until(lambda: query.counters.completed == 50 or query.last_error, 120)
        assert query.last_error is None

    if kind == "write":
        written = SparkSession.active().read.schema(SCHEMA).json(str(directory / "out")).collect()
        assert sorted(row.number for row in written) == list(range(50))
    else:
        assert feed.sunk() == dict.fromkeys(range(50), 1)
    assert RetryBook(acker, SPOUT).load() == {}


def sink_all(feed: Feed, batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        for row in batch.to_pylist():
            feed.sink(Row(**row))


def test_a_message_that_kills_its_worker_in_a_retry_is_found_and_dies_alone(
    stream: MakeStream, acker: Acker, feed: Feed
) -> None:
    """Two messages fail at first. At their second attempt one takes its worker down with it."""
    feed.put("one.json", range(10))
    directory = feed.directory

    def killer(row: Row) -> Row:
        seen = directory / f"seen {row.number}"
        if row.number in (3, 5) and not seen.exists():
            seen.touch()
            raise ValueError("first")
        if row.number == 3:
            os._exit(1)
        return row

    with stream().map(killer, SCHEMA).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: (query.counters.completed, query.counters.dead) == (9, 1) or query.last_error, 240)
        assert query.last_error is None

    [letter] = DeadLetters(acker, spout=SPOUT)
    assert (letter.message_id, len(letter.history)) == ("m3", 3)
    assert feed.sunk() == {n: 1 for n in range(10) if n != 3}


def test_a_store_that_is_away_is_waited_for(
    spark: SparkSession, namespace: str, feed: Feed, keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes away between two micro-batches, and comes back with what it had."""
    server = keeper.keep(start_server("redis-7.0", "--appendonly", "yes"))
    with Acker(server.url, namespace=namespace, retry_for_s=0.5) as acker:
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(feed.input))
        job = track_stream(frame, acker=acker, spout=SPOUT, message_id="id", retries=AT_ONCE)
        feed.put("one.json", range(10))
        with job.map(fail_three, SCHEMA).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint) as query:
            wait_until(lambda: query.counters.dead == 1, 120)
            server.kill()
            feed.put("two.json", range(10, 20))
            wait_until(lambda: "The stream of numbers waits, and will go on" in caplog.text, 120)
            assert query.is_active
            server.restart()
            wait_until(lambda: query.counters.completed == 19 or query.last_error, 120)
            assert query.last_error is None
    assert feed.sunk() == {n: 1 for n in range(20) if n != 3}


class Lagging(Told):
    """A source that knows what waits in it."""

    def lag(self) -> int:
        return 17


def test_a_paused_stream_begins_no_micro_batch_and_no_retry_until_it_is_resumed(
    stream: MakeStream, acker: Acker, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, number = SpoutStates(acker.shards), acker.spout_number(SPOUT)
    feed.put("one.json", range(10))
    policy = RetryPolicy(max_attempts=1000, first_ms=10, longest_ms=20)
    job = stream(retries=policy, source=Lagging()).map(fail_three, SCHEMA).sink(feed.sink, per="row")
    looks: list[str] = []
    """The threads that were told that it is paused."""

    def look(switch: Switch) -> bool:
        if found := is_paused(switch):
            looks.append(threading.current_thread().name)
        return found

    def look_for_a_while(*, in_micro_batch: bool = False) -> None:
        """Until the thread of the query, or that of a micro-batch, was told so several times."""
        looks.clear()
        wait_until(lambda: len([one for one in looks if (one != f"stream {SPOUT}") == in_micro_batch]) >= 3, 60)

    is_paused = Switch.is_paused
    monkeypatch.setattr(Switch, "is_paused", look)
    states.pause(number)
    with job.start(checkpoint=feed.checkpoint) as query:
        look_for_a_while(in_micro_batch=True)
        assert feed.sunk() == {}
        [spout] = [one for one in read_overview(acker).spouts if one.name == SPOUT]
        assert (spout.stats.initialised, spout.lag) == (0, 17)
        states.resume(number)
        wait_until(lambda: query.counters.completed == 9 and query.counters.retried > 1, 120)
        states.pause(number)
        look_for_a_while()
        retried = query.counters.retried
        look_for_a_while()
        assert query.counters.retried == retried
        states.resume(number)
        wait_until(lambda: query.counters.retried > retried, 120)
        states.pause(number)
        look_for_a_while()
        feed.put("two.json", range(10, 20))
    [spout] = [one for one in read_overview(acker).spouts if one.name == SPOUT]
    assert spout.lag is None
    assert states.all()[number].lag is None
    states.resume(number)


def test_a_stream_is_stopped_in_the_middle_and_goes_on(stream: MakeStream, acker: Acker, feed: Feed) -> None:
    feed.put("one.json", range(200))
    directory = feed.directory

    def slow(row: Row) -> None:
        if row.number == 150 and not (directory / "again").exists():
            (directory / "again").touch()
            time.sleep(600)
        feed.sink(row)

    query = stream().sink(slow, per="row").start(checkpoint=feed.checkpoint)
    wait_until(lambda: (directory / "again").exists(), 120)
    query.stop()
    assert query.last_error is None
    assert not query.is_active

    found = run(stream().sink(slow, per="row"), feed.checkpoint)
    assert found.waiting == 0
    assert set(feed.sunk()) == set(range(200))
    [stats] = [one for one in acker.stats().spouts if one.name == SPOUT]
    assert (stats.completed, stats.pending) == (200, 0)


def test_rows_are_kept_as_they_are() -> None:
    """Types that JSON has, types with a text of their own, and others."""
    zone = datetime.timezone.utc
    table = pa.table(
        {
            "text": pa.array(["a", None, "ü\n"]),
            "long": pa.array([1, -(1 << 63), None], pa.int64()),
            "double": pa.array([0.1, None, 1e300]),
            "flag": pa.array([True, False, None]),
            "bytes": pa.array([b"\x00\xff", None, b""], pa.binary()),
            "day": pa.array([datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1)], pa.date32()),
            "at": pa.array(
                [datetime.datetime(2024, 1, 1, 1, 2, 3, 456789, zone), None, None], pa.timestamp("us", "UTC")
            ),
            "local": pa.array([datetime.datetime(2024, 1, 1), None, None], pa.timestamp("us")),
            "price": pa.array(
                [decimal.Decimal("12345678901234567890.123"), None, decimal.Decimal("-0.001")], pa.decimal128(38, 3)
            ),
            "single": pa.array([0.5, None, 3.25], pa.float32()),
            "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
            "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
            "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        }
    )
    texts = pack_rows(table)
    assert unpack_rows([json.loads(text) for text in texts], table.schema).equals(table)
    assert json.loads(texts[0])[0]["day"] == "2024-02-29"


def test_a_column_that_is_new_is_null_in_rows_that_were_kept_before() -> None:
    schema = pa.schema([("id", pa.string()), ("new", pa.int64())])
    assert unpack_rows([[{"id": "a", "gone": 1}]], schema).to_pylist() == [{"id": "a", "new": None}]
