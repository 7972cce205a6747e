"""Aggregations: a row stands for every message that went into it, without naming them."""

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker
from spark_integration import BadFrame, JobFailed, track
from tests.spark.frames.books import books
from tests.spark.frames.conftest import MakeFrame


def test_messages_are_complete_when_their_group_was_written(tracked: MakeFrame, acker: Acker) -> None:
    seen: list[int] = []

    def count_pending(writer: object) -> None:
        seen.append(acker.pending_count("numbers"))
        writer.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]
        seen.append(acker.pending_count("numbers"))

    frame = tracked(30).with_column("tens", F.floor(F.col("number") / 10))
    summary = frame.group_by("tens").agg(F.sum("number").alias("sum")).write(count_pending)

    assert (summary.completed, seen) == (30, [30, 30])
    assert books(acker) == (30, 30, 0, 0)


def test_a_row_that_fails_behind_an_aggregation_fails_just_what_went_into_it(tracked: MakeFrame, acker: Acker) -> None:
    def check(row: Row) -> Row:
        if row.tens == 1:
            raise ValueError("the second ten")
        return row

    frame = tracked(30).with_column("tens", F.floor(F.col("number") / 10))
    groups = frame.group_by("tens").agg(F.count("*").alias("count"))
    summary = groups.map(check, groups.schema).sink(lambda batch: None)

    assert {one.message_id for one in summary.failures} == {f"m{i}" for i in range(10, 20)}
    assert {(one.step, one.error) for one in summary.failures} == {("check", "ValueError: the second ten")}
    assert books(acker) == (30, 20, 10, 0)


def test_groups_of_groups_are_traced_too(tracked: MakeFrame, acker: Acker) -> None:
    def check(row: Row) -> Row:
        if row.parity == 1:
            raise ValueError("odd tens")
        return row

    frame = tracked(40).with_column("tens", F.floor(F.col("number") / 10))
    groups = frame.group_by("tens").agg(F.count("*").alias("count")).with_column("parity", F.col("tens") % 2)
    outer = groups.group_by("parity").agg(F.sum("count").alias("count"))
    summary = outer.map(check, outer.schema).sink(lambda batch: None)

    assert {one.message_id for one in summary.failures} == {f"m{i}" for i in (*range(10, 20), *range(30, 40))}
    assert books(acker) == (40, 20, 20, 0)


def test_one_group_of_everything_stands_for_everything(tracked: MakeFrame, acker: Acker) -> None:
    def fail(row: Row) -> Row:
        raise ValueError("all")

    whole = tracked(6).where("number > 1").group_by().agg(F.count("*").alias("count"))
    summary = whole.map(fail, whole.schema).sink(lambda batch: None)

    assert {one.message_id for one in summary.failures} == {"m2", "m3", "m4", "m5"}
    assert books(acker) == (6, 2, 4, 0)
    with pytest.raises(BadFrame, match="stand for too many messages"):
        whole.to_df()


def test_groups_of_two_aggregations_are_told_apart(tracked: MakeFrame, acker: Acker) -> None:
    def strict(row: Row) -> Row:
        if row.number == 1:
            raise ValueError("one")
        return row

    left = tracked(3).group_by("number").agg(F.count("*").alias("left"))
    right = tracked(3, spout="others").group_by("number").agg(F.count("*").alias("right"))
    summary = left.map(strict, left.schema).join(right, "number").sink(lambda batch: None)

    assert [(one.spout, one.message_id) for one in summary.failures] == [("numbers", "m1")]
    assert books(acker, "others") == (3, 3, 0, 0)


def test_groups_with_nulls_in_different_places_are_told_apart(spark: SparkSession, acker: Acker) -> None:
    rows = [("m1", None, "a"), ("m2", "a", None), ("m3", None, None)]
    frame = track(
        spark.createDataFrame(rows, "id string, x string, y string"), acker=acker, spout="numbers", message_id="id"
    )

    def check(row: Row) -> Row:
        if row.x == "a":
            raise ValueError("a first")
        return row

    groups = frame.group_by("x", "y").agg(F.count("*").alias("count"))
    summary = groups.map(check, groups.schema).sink(lambda batch: None)

    assert [one.message_id for one in summary.failures] == ["m2"]


def test_a_sink_that_raises_for_a_group_fails_its_messages(tracked: MakeFrame) -> None:
    def store(batch: object) -> None:
        raise OSError("disk full")

    frame = tracked(6).where("number > 1").group_by("number").agg(F.count("*").alias("count"))
    summary = frame.sink(store)

    assert {one.message_id for one in summary.failures} == {"m2", "m3", "m4", "m5"}


def test_a_group_that_cannot_be_found_again_fails_the_run(tracked: MakeFrame, acker: Acker) -> None:
    def draw(row: Row) -> tuple[str]:
        import uuid

        return (str(uuid.uuid4()),)

    def fail(row: Row) -> Row:
        raise ValueError("any")

    groups = tracked(5).map(draw, "random string").group_by("random").agg(F.count("*").alias("count"))

    with pytest.raises(JobFailed, match=r"'fail' failed for 5 rows .* declare the step .* deterministic=False"):
        groups.map(fail, groups.schema).sink(lambda batch: None)
    assert books(acker) == (5, 0, 5, 0)


def test_declared_as_not_deterministic_it_is_found_again(tracked: MakeFrame, acker: Acker) -> None:
    def draw(row: Row) -> tuple[int, str]:
        import uuid

        return row.number, str(uuid.uuid4())

    def fail(row: Row) -> Row:
        if row.first == 3:
            raise ValueError("three")
        return row

    random = tracked(5).map(draw, "number long, random string", deterministic=False)
    groups = random.group_by("random").agg(F.first("number").alias("first"))
    summary = groups.map(fail, groups.schema).sink(lambda batch: None)

    assert [one.message_id for one in summary.failures] == ["m3"]
    assert books(acker) == (5, 4, 1, 0)
