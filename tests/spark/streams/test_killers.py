"""Messages that take their worker down: the stream goes on, the killer dies alone, and the others lose no attempt."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import asdict
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from redis_acker import Acker, DeadLetters
from redis_acker.retries.book import RetryBook
from spark_integration import JobFailed, StreamCounters, TrackedQuery
from spark_integration.streams.suspects import Suspects
from tests.spark.streams.conftest import MakeStream
from tests.spark.streams.feed import SCHEMA, SPOUT, Feed
from tests.waiting import wait_until


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


@pytest.mark.parametrize("how", ["exit in a step", "kill in the sink", "hang in the sink"])
def test_a_message_that_kills_its_worker_dies_alone_and_the_stream_goes_on(
    stream: MakeStream, acker: Acker, feed: Feed, how: str
) -> None:
    """The innocent ones are completed at their first attempt, and each is done once."""
    feed.put("one.json", range(200))
    feed.put("two.json", range(200, 220))
    sink = feed.sink

    def step(row: Row) -> Row:
        if row.number == 77 and how == "exit in a step":
            os._exit(1)
        return row

    def kill(row: Row) -> None:
        if row.number == 77 and how == "kill in the sink":
            os.kill(os.getpid(), signal.SIGKILL)
        if row.number == 77 and how == "hang in the sink":
            time.sleep(600)
        sink(row)

    job = stream().map(step, SCHEMA).sink(kill, per="row", sink_timeout_s=2)
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
    """They are in the retry book by then, and their rows come again with the micro-batch. are_excluded: it dies when
    the store knows that the micro-batch leaves them out, and not before."""
    feed.put("one.json", range(200))
    mended = feed.directory / "mended"

    def step(row: Row) -> Row:
        if row.number == 77 and not mended.exists():
            os._exit(1)
        return row

    real = Suspects._exclude

    def exclude(suspects: Suspects, *args: Any) -> None:
        if are_excluded:
            real(suspects, *args)
        raise JobFailed("It is killed here.")

    monkeypatch.setattr(Suspects, "_exclude", exclude)
    with pytest.raises(JobFailed, match="It is killed here"):
        stream().map(step, SCHEMA).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint).wait(120)
    waiting = RetryBook(acker, SPOUT).load()
    assert "m77" in waiting
    assert all((retry.attempt, retry.suspicion is not None) == (0, True) for retry in waiting.values())
    monkeypatch.undo()
    mended.touch()

    with stream().map(step, SCHEMA).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint) as query:
        until(query, batches=1, waiting=0)

    assert books(acker) == (200, 0)
    assert set(feed.sunk()) == set(range(200))
    assert RetryBook(acker, SPOUT).load() == {}
