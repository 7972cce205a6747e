"""Entries are deleted when they are finished and Spark has committed their batch: not before, and not never."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from redis_acker.errors import BadInput
from spark_integration import RedisStreamSource
from tests.spark.sources.queries import SCHEMA, Queries
from tests.waiting import wait_until

Fill = Callable[..., list[str]]

#: Under load, starting a query takes its time.
LONG_S = 120


@pytest.fixture
def source(url: str, stream: str) -> RedisStreamSource:
    return RedisStreamSource(url, stream)


def left(client: Any, stream: str) -> list[int]:
    return [int(fields[b"number"]) for _, fields in client.xrange(stream)]


def test_an_entry_goes_when_it_is_finished_and_committed(
    queries: Queries, source: RedisStreamSource, client: Any, fill: Fill, stream: str
) -> None:
    ids = fill(range(10))
    queries.run(source.frame(queries.spark, SCHEMA))
    source.finish(ids[:4])
    before = left(client, stream)  # Spark tells the source of a commit with the batch that follows
    fill([10])
    queries.run(source.frame(queries.spark, SCHEMA))
    after = left(client, stream)
    source.finish(ids[4:6])
    source.finish(ids[:6])

    assert before == list(range(10))
    assert after == list(range(4, 11))
    assert left(client, stream) == list(range(6, 11))


def test_a_batch_that_failed_after_its_messages_were_finished_has_the_same_rows_again(
    queries: Queries, source: RedisStreamSource, client: Any, fill: Fill, stream: str
) -> None:
    ids = fill(range(10))

    def finish_and_fail(_: Any, __: int) -> None:
        source.finish(ids)
        raise RuntimeError("before the commit")

    with pytest.raises(StreamingQueryException, match="before the commit"):
        queries.run(source.frame(queries.spark, SCHEMA), finish_and_fail)

    assert left(client, stream) == list(range(10))
    assert [sorted(one) for one in queries.run(source.frame(queries.spark, SCHEMA))] == [list(range(10))]


def test_what_is_not_finished_stays_for_a_query_with_another_checkpoint(
    queries: Queries, source: RedisStreamSource, client: Any, fill: Fill, stream: str, tmp_path: Any
) -> None:
    """And the commits of the one before do not count for its batches."""
    ids = fill(range(10))
    queries.run(source.frame(queries.spark, SCHEMA))
    fill([10])
    queries.run(source.frame(queries.spark, SCHEMA))
    source.finish(ids[:8])
    assert left(client, stream) == [8, 9, 10]
    other = Queries(queries.spark, tmp_path / "other")

    def finish_and_fail(_: Any, __: int) -> None:
        source.finish(ids)
        raise RuntimeError("before the commit")

    with pytest.raises(StreamingQueryException, match="before the commit"):
        other.run(source.frame(queries.spark, SCHEMA), finish_and_fail)

    assert [sorted(one) for one in other.run(source.frame(queries.spark, SCHEMA))] == [[8, 9, 10]]


def test_with_max_pending_unfinished_the_query_waits_and_says_so(
    queries: Queries, url: str, client: Any, fill: Fill, stream: str
) -> None:
    source = RedisStreamSource(url, stream, max_pending=10, max_per_trigger=4)
    seen: list[str] = []
    fill(range(30))
    query = queries.start(
        source.frame(queries.spark, SCHEMA), lambda batch, _: seen.extend(row.id for row in batch.collect())
    )

    def is_full() -> bool:
        return bool(query.exception() is None and source.status()[0].is_full)

    wait_until(lambda: is_full() and len(seen) == 10, LONG_S)
    [status] = source.status()
    assert (status.pending, status.waiting, status.finished) == (10, 20, 0)
    assert source.lag() == 20
    source.finish(seen[:3])
    wait_until(lambda: is_full() and len(seen) == 13, LONG_S)

    def is_done() -> bool:
        source.finish(seen)
        return len(seen) == 30 and not source.status()[0].is_full

    wait_until(is_done, LONG_S)
    assert query.exception() is None
    assert len(set(seen)) == 30


def test_a_query_that_deletes_what_is_committed_keeps_the_last_batch(
    queries: Queries, client: Any, fill: Fill, stream: str
) -> None:
    fill(range(25))
    queries.run(queries.frame(stream, release="committed", max_per_trigger=10))

    assert left(client, stream) == list(range(20, 25))


def test_a_query_deletes_nothing_unless_it_is_told_to(queries: Queries, client: Any, fill: Fill, stream: str) -> None:
    fill(range(25))
    queries.run(queries.frame(stream, max_per_trigger=10))

    assert left(client, stream) == list(range(25))
    assert client.keys(f"*{stream}*") == [stream.encode()]


def test_a_message_of_another_stream_cannot_be_finished(source: RedisStreamSource) -> None:
    with pytest.raises(BadInput, match=r"'other/1-0' is not a message of \['t"):
        source.finish(["other/1-0"])
    with pytest.raises(BadInput, match="'nonsense' is not the id of an entry"):
        source.finish([f"{source.status()[0].stream}/nonsense"])
