"""A tracked stream: every message is completed or dead, and what failed comes again by itself."""

import pytest
from pyspark.sql import Row

from redis_acker import Acker, DeadLetters, RetryPolicy
from redis_acker.retries.book import RetryBook
from spark_integration import StreamCounters
from tests.spark.streams.conftest import MakeStream
from tests.spark.streams.feed import NOW, SCHEMA, SPOUT, Feed
from tests.waiting import wait_until


def books(acker: Acker, spout: str = SPOUT) -> tuple[int, int]:
    """Roots of a spout that have completed, and that are pending."""
    [found] = [one for one in acker.stats().spouts if one.name == spout]
    return found.completed, found.pending


def test_every_message_of_a_stream_is_completed(stream: MakeStream, acker: Acker, feed: Feed) -> None:
    feed.put("one.json", range(100))
    feed.put("two.json", range(100, 150))

    query = (
        stream().map(lambda row: row, SCHEMA).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint, trigger=NOW)
    )
    assert query.wait(120)

    found = query.counters
    assert (found.batches, found.messages, found.completed) == (2, 150, 150)
    assert (found.failed, found.waiting, found.dead) == (0, 0, 0)
    assert found.p50_ms is not None
    assert found.p99_ms is not None
    assert found.p50_ms <= found.p99_ms
    assert feed.sunk() == dict.fromkeys(range(150), 1)
    assert books(acker) == (150, 0)


def test_a_failed_message_comes_again_without_new_input(stream: MakeStream, acker: Acker, feed: Feed) -> None:
    """It fails twice, and the stream has nothing else to do."""
    feed.put("one.json", range(10))
    directory = feed.directory

    def strict(row: Row) -> Row:
        if row.number == 3:
            tries = directory / "tries"
            tries.write_text(f"{tries.read_text() if tries.exists() else ''}x")
            if len(tries.read_text()) < 3:
                raise ValueError("not yet")
        return row

    job = stream(retries=RetryPolicy(max_attempts=5, first_ms=50)).map(strict, SCHEMA).sink(feed.sink, per="row")
    with job.start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: query.counters.completed == 10 and query.counters.waiting == 0, 120)
        found = query.counters

    assert (found.batches, found.messages, found.failed, found.retried, found.dead) == (1, 10, 2, 2, 0)
    assert feed.sunk() == dict.fromkeys(range(10), 1)
    assert RetryBook(acker, SPOUT).load() == {}
    assert books(acker) == (10, 0)


def test_a_message_that_keeps_failing_is_a_dead_letter_with_its_row_and_history(
    stream: MakeStream, acker: Acker, feed: Feed
) -> None:
    feed.put("one.json", range(10))

    def strict(row: Row) -> Row:
        if row.number == 3:
            raise ValueError("never")
        return row

    with stream().map(strict, SCHEMA).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: query.counters.dead == 1, 120)
        feed.put("two.json", range(10, 20))
        wait_until(lambda: query.counters.completed == 19, 120)

    [letter] = DeadLetters(acker, spout=SPOUT)
    assert letter.message_id == "m3"
    assert [(one.attempt, one.error) for one in letter.history] == [(n, "ValueError: never") for n in (1, 2, 3)]
    assert letter.payload == [{"id": "m3", "number": 3}]
    assert feed.sunk() == {n: 1 for n in range(20) if n != 3}
    assert books(acker) == (19, 0)


def test_a_dead_letter_is_replayed_into_the_running_query(stream: MakeStream, acker: Acker, feed: Feed) -> None:
    feed.put("one.json", range(10))
    directory = feed.directory

    def strict(row: Row) -> Row:
        if row.number == 3 and not (directory / "mended").exists():
            raise ValueError("broken")
        return row

    with stream().map(strict, SCHEMA).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: query.counters.dead == 1, 120)
        (directory / "mended").touch()
        letters = DeadLetters(acker, spout=SPOUT)
        [letter] = letters
        assert letters.replay(letter)
        wait_until(lambda: query.counters.completed == 10, 120)

    assert feed.sunk() == dict.fromkeys(range(10), 1)
    assert len(DeadLetters(acker, spout=SPOUT)) == 0
    assert RetryBook(acker, SPOUT).load() == {}


def test_what_waits_when_a_query_ends_comes_at_the_next_start(
    stream: MakeStream, acker: Acker, feed: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    """The next start has no new input."""
    feed.put("one.json", range(10))
    directory = feed.directory

    def strict(row: Row) -> Row:
        if row.number == 3 and not (directory / "mended").exists():
            raise ValueError("broken")
        return row

    def run() -> StreamCounters:
        retries = RetryPolicy(max_attempts=3, first_ms=3_600_000, longest_ms=3_600_000)
        job = stream(retries=retries).map(strict, SCHEMA).sink(feed.sink, per="row")
        query = job.start(checkpoint=feed.checkpoint, trigger=NOW)
        assert query.wait(120)
        return query.counters

    first = run()
    assert (first.completed, first.waiting) == (9, 1)
    assert "1 messages of spout numbers wait for their next attempt: the next start brings them." in caplog.text
    second = run()
    assert (second.messages, second.retried, second.waiting) == (0, 0, 1)
    (directory / "mended").touch()
    book = RetryBook(acker, SPOUT)
    [retry] = book.load().values()
    retry.due_ms = 0  # as if its pause were over
    book.note({"m3": retry})
    third = run()

    assert (third.messages, third.completed, third.retried, third.waiting) == (0, 1, 1, 0)
    assert feed.sunk() == dict.fromkeys(range(10), 1)
