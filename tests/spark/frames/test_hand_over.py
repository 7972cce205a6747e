"""Rows that leave for another application: the message is complete when all of them are acked there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, Anchors, Rotator
from spark_integration import BadFrame, track
from tests.spark.frames.books import books
from tests.spark.frames.conftest import MakeFrame


def sink(frame: Any) -> Any:
    return frame.sink(lambda batch: None)


def test_a_message_is_pending_until_all_its_rows_are_acked(tracked: MakeFrame, acker: Acker) -> None:
    frame = tracked(3).flat_map(lambda row: [(row.id,)] * row.number, "id string").to_df()
    assert books(acker) == (3, 1, 0, 2)  # m0 became no row

    for done, row in enumerate(sorted(frame.collect(), key=lambda row: row.id)):
        anchors = Anchors.from_bytes(row.anchors)
        acker.ack(list(anchors), list(anchors.values()))
        assert books(acker) == (3, (2, 2, 3)[done], 0, (1, 1, 0)[done])


def test_rows_are_the_same_however_often_they_are_computed(tracked: MakeFrame) -> None:
    frame = tracked(50).repartition(3).to_df()

    assert sorted(frame.collect()) == sorted(frame.repartition(5).orderBy("number").collect())


def test_equal_rows_of_one_message_have_edges_of_their_own(tracked: MakeFrame) -> None:
    rows = tracked(2).flat_map(lambda row: [("same",)] * 4, "text string").to_df().collect()

    assert len({row.anchors for row in rows}) == 8


def test_another_application_goes_on_with_them(
    tracked: MakeFrame, acker: Acker, spark: SparkSession, tmp_path: Path
) -> None:
    first = tracked(20).with_column("part", F.explode(F.array(F.lit(1), F.lit(2), F.lit(3))))
    first.to_df().write.parquet(str(tmp_path / "between"))
    between = spark.read.parquet(str(tmp_path / "between"))
    assert books(acker) == (20, 0, 0, 20)

    summary = sink(track(between.where("part = 1"), anchors="anchors", acker=acker, name="second"))
    assert (summary.tracked, summary.completed, books(acker)) == (20, 20, (20, 0, 0, 20))

    sink(track(between.where("part > 1"), anchors="anchors", acker=acker, name="second"))
    assert books(acker) == (20, 20, 0, 0)


def test_the_second_application_may_be_run_again(
    tracked: MakeFrame, acker: Acker, spark: SparkSession, tmp_path: Path
) -> None:
    """It died after its acks were sent, before anybody knew: the same rows are brought again."""
    tracked(10).with_column("part", F.explode(F.array(F.lit(1), F.lit(2)))).to_df().write.parquet(str(tmp_path / "b"))
    between = spark.read.parquet(str(tmp_path / "b"))

    for _ in range(2):
        sink(track(between.where("part = 1").repartition(3), anchors="anchors", acker=acker, name="second"))
    assert books(acker) == (10, 0, 0, 10)

    sink(track(between.where("part = 2"), anchors="anchors", acker=acker, name="second"))
    assert books(acker) == (10, 10, 0, 0)


def test_what_fails_in_the_second_application_fails_the_message(tracked: MakeFrame, acker: Acker) -> None:
    def fail(row: Row) -> Row:
        if row.number == 4:
            raise ValueError("four")
        return Row(row.number)

    frame = tracked(10).to_df().localCheckpoint()
    summary = sink(track(frame, anchors="anchors", acker=acker, name="second").map(fail, "number long", name="strict"))

    [failure] = summary.failures
    assert (failure.step, failure.error, summary.completed) == ("strict", "ValueError: four", 9)
    assert failure.message_id is None
    assert str(failure) == f"root 0x{failure.root:016x} failed in strict (attempt 1): ValueError: four"
    assert books(acker) == (10, 9, 1, 0)
    [later] = sink(tracked(10).map(fail, "number long")).failures
    assert (later.message_id, later.attempt) == ("m4", 2)


def test_three_applications_in_a_row(tracked: MakeFrame, acker: Acker, spark: SparkSession) -> None:
    def twice(row: Row) -> list[Row]:
        return [row, row]

    first = tracked(10).flat_map(twice, "id string, number long").to_df().localCheckpoint()
    second = track(first, anchors="anchors", acker=acker, name="second").flat_map(twice, "id string, number long")
    between = second.to_df().localCheckpoint()
    assert (between.count(), books(acker)) == (40, (10, 0, 0, 10))

    assert sink(track(between, anchors="anchors", acker=acker, name="third")).completed == 40
    assert books(acker) == (10, 10, 0, 0)


def test_rows_that_met_in_a_join_are_acked_for_all_their_messages(
    tracked: MakeFrame, acker: Acker, numbers: Callable[[int], DataFrame]
) -> None:
    """Also when both sides are rows of the same message."""
    left = tracked(6)
    right = left.select(F.col("number").alias("n"), "id")
    frame = left.join(right, F.col("number") % 2 == F.col("n") % 2).select("number", "n").to_df()
    assert books(acker) == (6, 0, 0, 6)

    rows = frame.collect()
    assert {len(Anchors.from_bytes(row.anchors)) for row in rows} == {1, 2}
    for i, row in enumerate(rows):
        anchors = Anchors.from_bytes(row.anchors)
        acker.ack(list(anchors), list(anchors.values()))
        assert (books(acker)[3] == 0) == (i == len(rows) - 1) or books(acker)[1] < 6
    assert books(acker) == (6, 6, 0, 0)


def test_rows_behind_an_aggregation_cannot_be_handed_over(tracked: MakeFrame) -> None:
    with pytest.raises(BadFrame, match=r"stand for too many messages to name them all: hand rows over before group_by"):
        tracked(3).group_by("number").agg(F.count("*")).to_df()


def test_the_column_of_the_anchors_has_the_name_it_is_given(tracked: MakeFrame) -> None:
    assert tracked(3).to_df(anchors="trail").columns == ["id", "number", "trail"]


def test_anchors_that_have_no_place_leave_nothing_pending(tracked: MakeFrame, acker: Acker) -> None:
    with pytest.raises(BadFrame, match="The frame has a column 'number' already"):
        tracked(3).to_df(anchors="number")
    assert books(acker)[3] == 0


def test_rows_without_message_have_no_anchors(tracked: MakeFrame, acker: Acker, spark: SparkSession) -> None:
    names = spark.createDataFrame([(2, "two"), (7, "seven"), (1, "one")], "number long, name string")
    rows = tracked(3).join(names, "number", "right").to_df().collect()

    assert {row.name: row.anchors is None for row in rows} == {"one": False, "two": False, "seven": True}
    for row in rows:
        anchors = Anchors.from_bytes(row.anchors or b"")
        acker.ack(list(anchors), list(anchors.values()))
    assert books(acker) == (3, 3, 0, 0)


def test_rows_that_nobody_acks_time_out(servers: Any, namespace: str, numbers: Callable[[int], DataFrame]) -> None:
    from tests.waiting import wait_until

    with Acker(servers.get("redis-7.0").url, namespace=namespace, timeout_ms=500) as acker:
        track(numbers(5), acker=acker, spout="numbers", message_id="id").to_df()
        with Rotator(acker).start():
            wait_until(lambda: books(acker) == (5, 0, 5, 0))
