"""Entries that somebody took from under a query are missed at once, and exactly."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.sources.queries import Queries

Fill = Callable[..., list[str]]


def trim(client: Any, stream: str, ids: list[str]) -> None:
    """All that was read, and the next three."""
    client.xtrim(stream, maxlen=7, approximate=False)


def delete(client: Any, stream: str, ids: list[str]) -> None:
    client.xdel(stream, *(ids[place].rpartition("/")[2] for place in (2, 12, 15, 19)))


@pytest.fixture(params=[trim, delete])
def ids(request: pytest.FixtureRequest, queries: Queries, client: Any, fill: Fill, stream: str) -> list[str]:
    """Twenty entries. A query has read ten of them, and three of the others are gone."""
    found = fill(range(10))
    queries.run(queries.frame(stream))
    found += fill(range(10, 20))
    request.param(client, stream, found)
    return found


def test_entries_that_are_gone_before_they_were_read_end_the_query(
    queries: Queries, ids: list[str], stream: str
) -> None:
    with pytest.raises(StreamingQueryException) as failed:
        queries.run(queries.frame(stream))
    last = ids[9].rpartition("/")[2], ids[19].rpartition("/")[2]
    assert (
        f"EntriesMissing: 3 entries of the stream {stream!r} behind {last[0]} and up to {last[1]} are gone "
        "before they were processed: somebody has trimmed the stream, or deleted them. Set the option missing=skip"
    ) in str(failed.value)


def test_a_query_can_go_on_without_them_and_counts_them(
    queries: Queries, ids: list[str], client: Any, fill: Fill, stream: str
) -> None:
    there = [int(fields[b"number"]) for _, fields in client.xrange(stream)]
    ends: list[int] = []
    batches = queries.run(queries.frame(stream, missing="skip", max_per_trigger=5), lambda _, batch: ends.append(batch))

    assert sorted(one for batch in batches for one in batch) == [one for one in there if one >= 10]
    offset = (queries.directory / "state" / "offsets" / str(ends[-1])).read_text().splitlines()[-1]
    assert '"skipped": 3' in offset
    fill(range(20, 23))
    assert queries.run(queries.frame(stream)) == [[20, 21, 22]]


def test_a_batch_that_is_read_again_misses_what_was_trimmed_meanwhile(
    queries: Queries, client: Any, fill: Fill, stream: str
) -> None:
    fill(range(10))

    def fail(_: Any, __: int) -> None:
        client.xtrim(stream, maxlen=4, approximate=False)
        raise RuntimeError("before the commit")

    with pytest.raises(StreamingQueryException, match="before the commit"):
        queries.run(queries.frame(stream), fail)
    with pytest.raises(StreamingQueryException, match="EntriesMissing: 6 entries"):
        queries.run(queries.frame(stream))
    assert [sorted(one) for one in queries.run(queries.frame(stream, missing="skip"))] == [[6, 7, 8, 9]]


def test_a_task_misses_what_was_trimmed_since_its_batch_was_planned(
    queries: Queries, client: Any, fill: Fill, stream: str
) -> None:
    fill(range(10))

    def trim_and_read(batch: Any, _: int) -> None:
        client.xtrim(stream, maxlen=4, approximate=False)
        batch.write.format("noop").mode("overwrite").save()

    query = queries.start(queries.frame(stream), trim_and_read)
    with pytest.raises(StreamingQueryException, match="EntriesMissing: 6 entries"):
        assert not query.awaitTermination(180)


def test_a_stream_that_was_created_anew_ends_the_query(queries: Queries, client: Any, fill: Fill, stream: str) -> None:
    fill(range(10))
    queries.run(queries.frame(stream))
    client.delete(stream)
    fill(range(3))

    with pytest.raises(StreamingQueryException, match="was deleted and created again"):
        queries.run(queries.frame(stream))


def test_deletions_from_before_the_query_are_no_loss(queries: Queries, client: Any, fill: Fill, stream: str) -> None:
    ids = fill(range(10))
    client.xdel(stream, *(one.rpartition("/")[2] for one in ids[4:9]))
    client.xtrim(stream, maxlen=4, approximate=False)

    assert [sorted(one) for one in queries.run(queries.frame(stream, max_per_trigger=2))] == [[1, 2], [3, 9]]
