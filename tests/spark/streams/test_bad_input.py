"""What does not fit is refused by name, and rows that cannot be tracked do not stop the stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from redis_acker import Acker, DeadLetters, RetryPolicy
from redis_acker.errors import BadInput, UnreadableRun
from redis_acker.retries.book import MAX_PAYLOAD_BYTES, DeadLetter
from spark_integration import BadFrame, OtherCheckpoint, StreamCounters, StreamJob, track_stream
from tests.spark.streams.conftest import AT_ONCE, MakeStream
from tests.spark.streams.feed import NOW, SCHEMA, SPOUT, Feed
from tests.waiting import wait_until


def run(job: StreamJob, checkpoint: str, **options: Any) -> StreamCounters:
    query = job.start(checkpoint=checkpoint, trigger=NOW, **options)
    assert query.wait(120)
    return query.counters


def letters(acker: Acker) -> dict[str, DeadLetter]:
    return {str(letter.message_id): letter for letter in DeadLetters(acker, spout=SPOUT)}


# -- what belongs together -----------------------------------------------------------------------------------------


@pytest.fixture
def done(stream: MakeStream, feed: Feed) -> Feed:
    """A query that has run to its end."""
    feed.put("one.json", range(10))
    run(stream().sink(feed.sink, per="row"), feed.checkpoint)
    return feed


def test_another_checkpoint_is_refused_unless_the_query_was_replaced(done: Feed, stream: MakeStream) -> None:
    job, other = stream().sink(done.sink, per="row"), str(done.directory / "other")
    with pytest.raises(OtherCheckpoint, match=r"Spout 'numbers' has a query with another checkpoint .* is new: start"):
        job.start(checkpoint=other, trigger=NOW)

    assert run(job, other, takes_over=True).completed == 10
    with pytest.raises(OtherCheckpoint, match="is that of query"):
        job.start(checkpoint=done.checkpoint, trigger=NOW)


def test_the_checkpoint_of_another_spout_is_refused(done: Feed, stream: MakeStream) -> None:
    job = stream("others").sink(done.sink, per="row")
    with pytest.raises(OtherCheckpoint, match="is that of spout 'numbers', not of 'others'"):
        job.start(checkpoint=done.checkpoint, trigger=NOW)


def test_another_column_of_message_ids_is_refused(done: Feed, stream: MakeStream) -> None:
    job = stream(message_id="number").sink(done.sink, per="row")
    with pytest.raises(OtherCheckpoint, match="knows its messages by the column 'id', not by 'number'"):
        job.start(checkpoint=done.checkpoint, trigger=NOW)


def test_an_older_copy_of_the_checkpoint_is_refused(done: Feed, acker: Acker, stream: MakeStream) -> None:
    stored = acker.shards.tracked_streams()
    record = json.loads(stored.get(SPOUT) or b"")
    stored.put({SPOUT: json.dumps({**record, "batch": 7})})
    done.put("two.json", range(10, 20))

    query = stream().sink(done.sink, per="row").start(checkpoint=done.checkpoint, trigger=NOW)
    with pytest.raises(OtherCheckpoint, match="micro-batch 1 of spout 'numbers', and 7 is finished already"):
        query.wait(120)

    assert isinstance(query.last_error, OtherCheckpoint)
    assert done.sunk() == dict.fromkeys(range(10), 1)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ('{"format": 2, "query": "q"}', "is in format 2, and this version reads 1"),
        ("nonsense", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_a_record_that_this_version_cannot_read_is_refused(
    done: Feed, acker: Acker, stream: MakeStream, stored: str, said: str
) -> None:
    acker.shards.tracked_streams().put({SPOUT: stored})
    with pytest.raises(UnreadableRun, match=f"The record of the stream of spout 'numbers' {said}"):
        stream().sink(done.sink, per="row").start(checkpoint=done.checkpoint, trigger=NOW)


# -- what track_stream() is given ----------------------------------------------------------------------------------


def test_mistakes_are_reported_where_they_are_made(
    stream: MakeStream, acker: Acker, feed: Feed, spark: SparkSession
) -> None:
    still = spark.createDataFrame([("m1", 1)], SCHEMA)
    with pytest.raises(BadFrame, match="this one has an end, use track"):
        track_stream(still, acker=acker, spout=SPOUT, message_id="id")
    with pytest.raises(BadFrame, match="There is no column 'key' for the message id"):
        stream(message_id="key")
    with pytest.raises(BadInput, match="track_stream\\(\\) does not take replays, resume"):
        stream(replays=1, resume=False)
    with pytest.raises(BadInput, match="max_waiting is a number of messages, 1 or more, not 0"):
        stream(max_waiting=0)
    with pytest.raises(Exception, match="nothing"):
        stream().where("nothing > 1")
    with pytest.raises(BadFrame, match="joins a DataFrame that is not streaming"):
        stream().join(spark.readStream.schema(SCHEMA).json(str(feed.input)), "id")


# -- rows ----------------------------------------------------------------------------------------------------------


def test_rows_without_an_id_or_with_one_twice_are_dead_letters_and_the_stream_goes_on(
    stream: MakeStream, acker: Acker, feed: Feed
) -> None:
    rows = [{"id": f"m{n}", "number": n} for n in range(10)]
    twice, nameless = {"id": "m3", "number": 103}, {"id": None, "number": 100}
    feed.put_rows("one.json", [*rows, twice, nameless, {"id": "x" * 1025, "number": 101}])
    feed.put("two.json", range(10, 20))

    found = run(stream().map(lambda row: row, SCHEMA).sink(feed.sink, per="row"), feed.checkpoint)

    assert (found.batches, found.messages, found.completed, found.dead) == (2, 23, 20, 3)
    assert feed.sunk() == dict.fromkeys(range(20), 1)
    said = {
        letter.payload[0]["number"]: letter.history[-1].error for letter in letters(acker).values() if letter.payload
    }
    assert said == {
        100: "it has no message id",
        101: "its message id has more than 1024 bytes",
        103: "another row of the same micro-batch has the same message id",
    }


def test_an_id_that_comes_again_later_in_its_partition_is_a_dead_letter(
    spark: SparkSession, stream: MakeStream, acker: Acker, feed: Feed
) -> None:
    """However far apart: rows come to a worker in Arrow batches of ten here."""
    rows = [{"id": f"m{n}", "number": n} for n in range(100)]
    feed.put_rows("one.json", [*rows, {"id": "m3", "number": 103}, {"id": "m55", "number": 155}, rows[99]])
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        found = run(stream().map(lambda row: row, SCHEMA).sink(feed.sink, per="row"), feed.checkpoint)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    assert (found.messages, found.completed, found.dead) == (103, 100, 3)
    assert feed.sunk() == dict.fromkeys(range(100), 1)
    said = {
        letter.payload[0]["number"]: letter.history[-1].error for letter in letters(acker).values() if letter.payload
    }
    assert said == dict.fromkeys([103, 155, 99], "another row of the same micro-batch has the same message id")


def test_a_row_with_the_id_of_a_message_that_waits_is_a_dead_letter_unless_it_is_the_same_row(
    stream: MakeStream, acker: Acker, feed: Feed
) -> None:
    directory = feed.directory

    def strict(row: Row) -> Row:
        if row.number in (3, 4) and not (directory / "mended").exists():
            raise ValueError("broken")
        return row

    feed.put("one.json", range(10))
    waits = RetryPolicy(max_attempts=1000, first_ms=10, longest_ms=50)
    with (
        stream(retries=waits).map(strict, SCHEMA).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint) as query
    ):
        wait_until(lambda: query.counters.waiting == 2 or query.last_error, 120)
        feed.put_rows("two.json", [{"id": "m3", "number": 103}, {"id": "m4", "number": 4}, {"id": "m10", "number": 10}])
        wait_until(lambda: (query.counters.completed, query.counters.dead) == (9, 1) or query.last_error, 120)
        (directory / "mended").touch()
        wait_until(lambda: (query.counters.completed, query.counters.waiting) == (11, 0) or query.last_error, 120)
        assert query.last_error is None

    assert feed.sunk() == dict.fromkeys(range(11), 1)
    [letter] = letters(acker).values()
    assert letter.payload == [{"id": "m3", "number": 103}]
    assert letter.history[-1].error == "a message with the same id waits for another attempt"


def test_rows_without_an_id_do_not_stop_a_job_with_a_shuffle(stream: MakeStream, acker: Acker, feed: Feed) -> None:
    rows = [{"id": f"m{n}", "number": n} for n in range(10)]
    many = [{"id": None, "number": 1_000 + n} for n in range(10_001)]
    feed.put_rows("one.json", [*rows, *many, {"id": "x" * 1025, "number": 101}])

    found = run(stream().repartition(2).sink(feed.sink, per="row"), feed.checkpoint)

    assert (found.messages, found.completed, found.dead) == (10, 10, 10_002)
    assert feed.sunk() == dict.fromkeys(range(10), 1)
    said = {letter.history[-1].error for letter in letters(acker).values()}
    assert said == {"it has no message id", "its message id has more than 1024 bytes"}


def test_a_row_whose_id_was_there_twice_can_be_replayed_and_one_without_cannot(
    stream: MakeStream, acker: Acker, feed: Feed
) -> None:
    feed.put_rows("one.json", [{"id": "m3", "number": 3}, {"id": "m3", "number": 103}, {"id": None, "number": 100}])
    run(stream().sink(feed.sink, per="row"), feed.checkpoint)
    dead = DeadLetters(acker, spout=SPOUT)
    for letter in list(dead):
        assert dead.replay(letter)

    found = run(stream().sink(feed.sink, per="row"), feed.checkpoint)

    assert (found.completed, found.dead, found.waiting) == (1, 1, 0)
    assert feed.sunk() == {3: 1, 103: 1}
    [letter] = dead
    assert letter.payload == [{"id": None, "number": 100}]


def test_a_row_that_is_too_long_to_be_kept_is_a_dead_letter_at_its_first_failure(
    spark: SparkSession, acker: Acker, feed: Feed
) -> None:
    """The other one that fails has all its attempts."""
    schema = "id string, number long, text string"
    texts = ["short", "x" * MAX_PAYLOAD_BYTES, "short"]
    feed.put_rows("one.json", [{"id": f"m{n}", "number": n, "text": text} for n, text in enumerate(texts)])

    def fail(row: Row) -> Row:
        if row.number:
            raise ValueError("no")
        return row

    frame = spark.readStream.schema(schema).json(str(feed.input))
    stream = track_stream(frame, acker=acker, spout=SPOUT, message_id="id", retries=AT_ONCE)
    with stream.map(fail, schema).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: query.counters.dead == 2, 120)

    found = letters(acker)
    assert [len(found[one].history) for one in ("m1", "m2")] == [1, 3]
    assert found["m1"].payload is None
    assert "characters as JSON, and at most 64,000 are kept for another attempt" in found["m1"].history[0].error
    assert found["m2"].payload == [{"id": "m2", "number": 2, "text": "short"}]


def test_a_sink_that_refuses_everything_stops_the_reading_and_not_for_ever(
    stream: MakeStream, acker: Acker, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten messages may wait. The next micro-batch begins when they are done."""
    feed.put("0.json", range(20))
    directory: Path = feed.directory

    def refuse(row: Row) -> None:
        if not (directory / "mended").exists():
            raise ConnectionError("down")
        feed.sink(row)

    job = stream(max_waiting=10, retries=RetryPolicy(max_attempts=1000, first_ms=10, longest_ms=50))
    with job.sink(refuse, per="row").start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: query.counters.waiting == 20, 120)
        feed.put("1.json", range(20, 40))
        wait_until(lambda: "the next micro-batch waits for them" in caplog.text, 120)
        assert query.counters.batches == 1
        (directory / "mended").touch()
        wait_until(lambda: query.counters.completed == 40, 120)
    assert feed.sunk() == dict.fromkeys(range(40), 1)
