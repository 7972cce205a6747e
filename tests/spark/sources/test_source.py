"""A Redis Stream as a source: every entry once, in exact batches, by several tasks."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from redis_acker.components.tuples import Anchors
from tests.spark.sources.queries import Queries

Fill = Callable[..., list[str]]


def test_every_entry_comes_once_over_restarts_of_the_query(queries: Queries, fill: Fill, stream: str) -> None:
    fill(range(10))
    first = queries.run(queries.frame(stream))
    nothing = queries.run(queries.frame(stream))
    fill(range(10, 15))
    second = queries.run(queries.frame(stream))

    assert [sorted(one) for one in first] == [list(range(10))]
    assert nothing == []
    assert [sorted(one) for one in second] == [list(range(10, 15))]


def test_a_micro_batch_has_no_more_entries_than_it_may(queries: Queries, fill: Fill, stream: str) -> None:
    fill(range(25))
    batches = queries.run(queries.frame(stream, max_per_trigger=10))

    assert [sorted(one) for one in batches] == [list(range(10)), list(range(10, 20)), list(range(20, 25))]


def test_several_tasks_read_a_stream_and_several_streams_are_read_evenly(
    queries: Queries, fill: Fill, stream: str
) -> None:
    fill(range(100), f"{stream}:0")
    fill(range(100, 104), f"{stream}:1")
    fill(range(200, 300), f"{stream}:2")
    tasks: list[int] = []
    frame = queries.frame(stream, shards=3, max_per_trigger=64, rows_per_partition=10)
    batches = queries.run(frame, lambda batch, _: tasks.append(batch.rdd.getNumPartitions()))

    assert sorted(one for batch in batches for one in batch) == [*range(104), *range(200, 300)]
    assert [len(one) for one in batches] == [64, 64, 64, 12]
    assert sorted(batches[0]) == [*range(30), *range(100, 104), *range(200, 230)]
    assert tasks[0] == 3 + 1 + 3


def test_a_row_has_all_of_its_entry(queries: Queries, client: Any, stream: str) -> None:
    anchors = Anchors({7: 9}).to_bytes()
    entry = client.xadd(stream, {"text": b"\xff\x00", "anchors": anchors, "number": 1}).decode()
    client.xadd(stream, {"number": 2})
    rows: list[Any] = []
    frame = queries.spark.readStream.format("redis_acker").option("stream", stream).load()
    queries.run(frame.selectExpr("*", "cast(fields['number'] as string) number"), lambda b, _: rows.extend(b.collect()))
    whole, bare = sorted(rows, key=lambda row: row.number)

    assert (whole.id, whole.stream, whole.entry) == (f"{stream}/{entry}", stream, entry)
    assert {name: bytes(value) for name, value in whole.fields.items()} == {
        "text": b"\xff\x00",
        "anchors": anchors,
        "number": b"1",
    }
    assert Anchors.from_bytes(bytes(whole.anchors)) == Anchors({7: 9})
    assert bare.anchors is None


def test_declared_fields_are_columns(queries: Queries, client: Any, stream: str) -> None:
    client.xadd(stream, {"number": 1, "text": b"\xffa"})
    rows: list[Any] = []
    queries.run(
        queries.frame(stream, "number string, text string, raw binary"), lambda batch, _: rows.extend(batch.collect())
    )

    assert [tuple(row) for row in rows] == [("1", "\ufffda", None)]


def test_a_schema_may_ask_when_an_entry_was_added(queries: Queries, client: Any, stream: str) -> None:
    """Whatever its fields. An id that is not made of a time is no error."""
    client.xadd(stream, {"arrived": "by ship"}, id="1700000000123-4")
    client.xadd(stream, {"arrived": "by air"}, id=f"{(1 << 64) - 1}-0")
    frame = queries.frame(stream, "arrived timestamp").selectExpr("unix_millis(arrived) AS number")
    assert queries.run(frame) == [[1_700_000_000_123, 253_402_300_799_999]]


def test_a_query_that_starts_with_the_newest_sees_what_comes_after_it_was_started(
    queries: Queries, fill: Fill, stream: str
) -> None:
    fill(range(5))
    assert queries.run(queries.frame(stream, start="newest")) == [[]]
    fill(range(5, 8))

    assert [sorted(one) for one in queries.run(queries.frame(stream, start="newest"))] == [[5, 6, 7]]


def test_a_stream_that_comes_later_is_read(queries: Queries, fill: Fill, stream: str) -> None:
    """Also a shard that was added to the query's."""
    assert queries.run(queries.frame(stream, shards=2)) == [[]]
    fill(range(3), f"{stream}:1")
    assert queries.run(queries.frame(stream, shards=2)) == [[0, 1, 2]]
    fill(range(3, 6), f"{stream}:3")
    assert queries.run(queries.frame(stream, shards=4)) == [[3, 4, 5]]


def test_a_batch_that_failed_is_read_again_with_the_same_rows(queries: Queries, fill: Fill, stream: str) -> None:
    """Though more has come, and tasks are cut in another way."""
    fill(range(10))
    seen: list[list[int]] = []

    def fail(batch: Any, _: int) -> None:
        seen.append(sorted(int(row.number) for row in batch.collect()))
        raise RuntimeError("after the body")

    with pytest.raises(StreamingQueryException, match="after the body"):
        queries.run(queries.frame(stream), fail)
    fill(range(10, 20))
    again = queries.run(queries.frame(stream, rows_per_partition=3))

    assert seen == [list(range(10))]
    assert [sorted(one) for one in again] == [list(range(10)), list(range(10, 20))]
