"""Messages that take their worker down: the stream goes on, the killer dies alone, and the others lose no attempt."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, DeadLetters
from redis_acker.retries.book import Retry, RetryBook
from redis_acker.store.message_ids import MessageId
from spark_integration import JobFailed, StreamCounters, TrackedQuery, track_stream
from spark_integration.streams import suspects
from spark_integration.streams.query import MOST_IN_VAIN
from spark_integration.streams.spout import StreamSpout
from spark_integration.streams.suspects import Suspects
from tests.spark.streams.conftest import AT_ONCE, MakeStream
from tests.spark.streams.feed import SCHEMA, SPOUT, Feed
from tests.waiting import wait_until

pytestmark = pytest.mark.full


def books(acker: Acker) -> tuple[int, int]:
    [found] = [one for one in acker.stats().spouts if one.name == SPOUT]
    return found.completed, found.pending


def until(query: TrackedQuery, **counters: int) -> StreamCounters:
    """Waits until the query has counted so much."""

    def has_counted() -> bool:
        return query.last_error is not None or counters.items() <= asdict(query.counters).items()

    wait_until(has_counted, 240)
    assert query.last_error is None
    return query.counters


@pytest.mark.parametrize(
    "how", ["exit in a step", "exit behind native columns", "kill in the sink", "hang in the sink"]
)
def test_a_message_that_kills_its_worker_dies_alone_and_the_stream_goes_on(
    stream: MakeStream, acker: Acker, feed: Feed, how: str
) -> None:
    """The innocent ones are completed at their first attempt, and each is done once."""
    feed.put("one.json", range(200))
    feed.put("two.json", range(200, 220))
    sink = feed.sink

    def step(row: Row) -> Row:
        if row.number == 77 and how.startswith("exit"):
            os._exit(1)
        return row

    def kill(row: Row) -> None:
        if row.number == 77 and how == "kill in the sink":
            os.kill(os.getpid(), signal.SIGKILL)
        if row.number == 77 and how == "hang in the sink":
            time.sleep(600)
        sink(row)

    tracked = stream()
    if how == "exit behind native columns":
        tracked = tracked.with_column("number", F.col("number") + 0)
    job = tracked.map(step, SCHEMA).sink(kill, per="row", sink_timeout_s=2)
    with job.start(checkpoint=feed.checkpoint) as query:
        found = until(query, batches=2, completed=219, dead=1)

    assert (found.messages, found.failed, found.retried, found.waiting) == (220, 3, 2, 0)
    [letter] = DeadLetters(acker, spout=SPOUT)
    assert (letter.message_id, letter.payload) == ("m77", [{"id": "m77", "number": 77}])
    assert [one.attempt for one in letter.history] == [1, 2, 3]
    assert all(one.error.startswith("its worker died of it, alone with it in a job: ") for one in letter.history)
    assert set(feed.sunk()) == set(range(220)) - {77}
    assert RetryBook(acker, SPOUT).load() == {}
    assert books(acker) == (219, 0)


@pytest.mark.parametrize("kind", ["shuffle", "write"])
def test_a_job_that_is_done_as_a_whole_is_done_in_parts_until_the_killer_is_alone(
    stream: MakeStream, acker: Acker, feed: Feed, kind: str
) -> None:
    feed.put("one.json", range(40))
    feed.put("two.json", range(40, 50))

    def step(row: Row) -> Row:
        if row.number == 17:
            os._exit(1)
        return row

    if kind == "shuffle":
        job = stream().repartition(2).map(step, SCHEMA).sink(feed.sink, per="row")
    else:
        job = stream().map(step, SCHEMA).write(lambda writer: writer.mode("append").json(str(feed.directory / "out")))
    with job.start(checkpoint=feed.checkpoint) as query:
        found = until(query, batches=2, completed=49, dead=1)

    assert (found.messages, found.failed, found.waiting) == (49, 3, 0)
    [letter] = DeadLetters(acker, spout=SPOUT)
    assert (letter.message_id, letter.payload) == ("m17", [{"id": "m17", "number": 17}])
    assert all(one.error.startswith("its worker died of it, alone with it in a job: ") for one in letter.history)
    if kind == "write":
        written = SparkSession.active().read.schema(SCHEMA).json(str(feed.directory / "out")).collect()
        assert sorted(row.number for row in written) == [n for n in range(50) if n != 17]
    else:
        assert set(feed.sunk()) == set(range(50)) - {17}
    assert books(acker) == (49, 0)


@pytest.mark.parametrize("are_excluded", [False, True])
def test_a_query_that_dies_with_suspects_completes_each_message_once(
    stream: MakeStream, acker: Acker, feed: Feed, monkeypatch: pytest.MonkeyPatch, are_excluded: bool
) -> None:
    """They are in the retry book by then, and their rows come again with the micro-batch, behind native columns, where
    they cannot be compared. are_excluded: it dies when the store knows that the micro-batch leaves them out, and not
    before."""
    feed.put("one.json", range(200))
    mended = feed.directory / "mended"

    def step(row: Row) -> Row:
        if row.number == 77 and not mended.exists():
            os._exit(1)
        return row

    real = Suspects._exclude

    def exclude(those: Suspects, *args: Any) -> None:
        if are_excluded:
            real(those, *args)
        raise JobFailed("It is killed here.")

    monkeypatch.setattr(Suspects, "_exclude", exclude)
    job = stream().with_column("number", F.col("number") + 0).map(step, SCHEMA).sink(feed.sink, per="row")
    with pytest.raises(JobFailed, match="It is killed here"):
        job.start(checkpoint=feed.checkpoint).wait(120)
    waiting = RetryBook(acker, SPOUT).load()
    assert "m77" in waiting
    assert all(retry.attempt == 0 for retry in waiting.values())
    monkeypatch.undo()
    mended.touch()

    with job.start(checkpoint=feed.checkpoint) as query:
        until(query, batches=1, waiting=0)

    assert books(acker) == (200, 0)
    assert set(feed.sunk()) == set(range(200))
    assert RetryBook(acker, SPOUT).load() == {}


@pytest.fixture
def suspected(monkeypatch: pytest.MonkeyPatch) -> list[set[MessageId]]:
    """The suspects of each death."""
    found: list[set[MessageId]] = []
    real = StreamSpout.note_suspects

    def note(spout: StreamSpout, some: Mapping[MessageId, Retry]) -> None:
        found.append(set(some))
        real(spout, some)

    monkeypatch.setattr(StreamSpout, "note_suspects", note)
    return found


def test_what_another_task_had_in_work_is_not_suspected(
    spark: SparkSession, acker: Acker, feed: Feed, suspected: list[set[MessageId]]
) -> None:
    """Spark says which task died. The other one is at work when that happens, in the other file."""
    feed.put("one.json", range(30))
    feed.put("two.json", range(100, 130))
    directory, sink = feed.directory, feed.sink

    def kill(row: Row) -> None:
        if row.number == 17:
            wait_until((directory / "at work").exists, 120)
            os._exit(1)
        if row.number == 100:
            (directory / "at work").touch()
            wait_until((directory / "found").exists, 120)
        sink(row)

    frame = spark.readStream.schema(SCHEMA).json(str(feed.input))
    job = track_stream(frame, acker=acker, spout=SPOUT, message_id="id", retries=AT_ONCE).sink(kill, per="row")
    with job.start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: suspected or query.last_error, 120)
        (directory / "found").touch()
        until(query, batches=1, completed=59, dead=1)
    assert suspected == [{f"m{n}" for n in range(30)}]
    assert books(acker) == (59, 0)


def test_of_very_many_suspects_some_stay_in_the_micro_batch(
    stream: MakeStream, acker: Acker, feed: Feed, monkeypatch: pytest.MonkeyPatch, suspected: list[set[MessageId]]
) -> None:
    """The killer is among the next ones."""
    monkeypatch.setattr(suspects, "MOST_AT_ONCE", 12)
    feed.put("one.json", range(30))

    def step(row: Row) -> Row:
        if row.number == 17:
            os._exit(1)
        return row

    with stream().map(step, SCHEMA).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint) as query:
        until(query, batches=1, completed=29, dead=1)
    assert [len(some) for some in suspected] == [12, 12]
    assert "m17" in suspected[1]
    assert books(acker) == (29, 0)


@pytest.mark.parametrize("deaths", [4, 1000])
def test_a_worker_that_dies_before_any_message_is_in_work_is_started_again_a_few_times(
    spark: SparkSession, acker: Acker, feed: Feed, deaths: int
) -> None:
    """Spark tries a task twice. The step stands before those that are tracked, and hands nothing on before it dies."""
    feed.put("one.json", range(30))
    directory = feed.directory

    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        died = len(list(directory.glob("died *")))
        if died < deaths:
            (directory / f"died {died}").touch()
            os._exit(1)
        yield from batches

    frame = spark.readStream.schema(SCHEMA).json(str(feed.input)).mapInArrow(die, SCHEMA)
    tracked = track_stream(frame, acker=acker, spout=SPOUT, message_id="id", retries=AT_ONCE, stable_source=True)
    query = tracked.sink(feed.sink, per="row").start(checkpoint=feed.checkpoint)
    if deaths == 4:
        with query:
            found = until(query, batches=1, completed=30)
        assert (found.failed, found.retried, found.dead) == (0, 0, 0)
        assert books(acker) == (30, 0)
    else:
        with pytest.raises(JobFailed):
            query.wait(240)
        assert len(list(directory.glob("died *"))) == 2 * (1 + MOST_IN_VAIN)
