"""A Redis Stream as a sink: every row of a batch once."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.spark.sources.queries import Queries


def numbers_in(client: Any, stream: str) -> list[int]:
    return [int(fields[b"number"]) for _, fields in client.xrange(stream)]


def write_stream(frame: DataFrame, directory: Path, stream: str, **options: Any) -> None:
    writer = frame.writeStream.format("redis_acker").option("stream", stream).trigger(availableNow=True)
    writer = writer.options(**{name: str(value) for name, value in options.items()})
    writer.option("checkpointLocation", str(directory)).start().awaitTermination()


def notes(client: Any, stream: str) -> list[str]:
    """The names of the notes beside a stream."""
    return sorted({key.decode().split("}:")[1].split(":")[0] for key in client.scan_iter(match=f"*{{{stream}*}}*")})


@pytest.fixture
def target(stream: str) -> str:
    return f"{stream}-target"


def test_rows_of_a_query_are_appended_batch_by_batch(
    queries: Queries, client: Any, fill: Any, stream: str, target: str, tmp_path: Path
) -> None:
    fill(range(1000))
    frame = queries.frame(stream, "number string, text string", max_per_trigger=400, rows_per_partition=100)
    write_stream(frame, tmp_path / "sink", target)
    first = numbers_in(client, target)
    fill(range(1000, 1100))
    write_stream(frame, tmp_path / "sink", target)

    assert first == list(range(1000))
    assert numbers_in(client, target) == list(range(1100))
    assert client.xrange(target, count=1)[0][1] == {b"number": b"0", b"text": b"n0"}
    assert notes(client, target) == ["written"]


def test_a_frame_is_appended_with_its_types_as_text_or_bytes(queries: Queries, client: Any, target: str) -> None:
    frame = queries.spark.sql(
        "select 7L number, 'ü' text, X'ff00' raw, 1.5D share, true is_so, date'2024-01-02' day, cast(null as string) "
        "none, map('a', X'01', 'b', null) fields"
    )
    frame.write.format("redis_acker").option("stream", target).mode("append").save()
    [(_, fields)] = client.xrange(target)

    assert fields == {
        b"number": b"7",
        b"text": "ü".encode(),
        b"raw": b"\xff\x00",
        b"share": b"1.5",
        b"is_so": b"true",
        b"day": b"2024-01-02",
        b"a": b"\x01",
    }
    assert notes(client, target) == []


def test_rows_are_dealt_out_to_streams_in_turn_or_by_their_key(queries: Queries, client: Any, target: str) -> None:
    frame = queries.spark.range(300).selectExpr("id number", "id % 7 customer").repartition(3)
    writer = frame.write.format("redis_acker").options(stream=target, shards="4").mode("append")
    writer.save()
    in_turn = [numbers_in(client, f"{target}:{shard}") for shard in range(4)]
    client.delete(*(f"{target}:{shard}" for shard in range(4)))
    writer.option("key", "customer").save()
    by_key = [numbers_in(client, f"{target}:{shard}") for shard in range(4)]

    assert sorted(sum(map(len, in_turn)) for _ in "x") == [300]
    assert all(60 < len(one) < 90 for one in in_turn)
    assert sorted(one for part in by_key for one in part) == list(range(300))
    customers = [{one % 7 for one in part} for part in by_key]
    assert sum(map(len, customers)) == 7


def test_what_was_staged_by_attempts_that_failed_is_removed(
    queries: Queries, client: Any, fill: Any, stream: str, target: str, tmp_path: Path
) -> None:
    """Each task fails once, behind its first rows."""
    fill(range(500))
    marks = tmp_path / "marks"
    marks.mkdir()

    def fail_once(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() == 0:
            raise RuntimeError("first attempt")

    frame = queries.frame(stream, "number string", rows_per_partition=250).mapInArrow(fail_once, "number string")
    write_stream(frame, tmp_path / "sink", target)

    assert numbers_in(client, target) == list(range(500))
    assert notes(client, target) == ["written"]


def test_rows_that_are_no_entries_are_refused(queries: Queries, target: str) -> None:
    def write(text: str, mode: str = "append", **options: str) -> str:
        writer = queries.spark.sql(text).write.format("redis_acker").mode(mode)
        with pytest.raises(Exception) as refused:  # noqa: PT011 - of Spark's, with ours inside
            writer.options(**{"stream": target, **options}).save()
        return str(refused.value)

    assert "An entry of a stream has 1 to 3,000 fields, not 0" in write("select cast(null as string) text")
    assert "The column 'a' is array<int>, and a field of an entry is text or bytes" in write("select array(1) a")
    assert "There is no column 'customer' for the option 'key', only ['a']" in write("select 1 a", key="customer")
    assert 'use mode("append")' in write("select 1 a", mode="overwrite")
