"""Steps on tracked frames: what they give, and which messages fail in them."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, FailedTuple
from spark_integration import Summary, TrackedFrame, track
from tests.spark.frames.books import books
from tests.spark.frames.conftest import MakeFrame


def collect(frame: TrackedFrame) -> tuple[Summary, list[Any]]:
    """Runs a frame: its summary, and its rows."""
    return frame.sink(lambda batch: None), [tuple(row) for row in frame.preview().collect()]


def test_every_row_that_goes_through_is_complete(tracked: MakeFrame, acker: Acker) -> None:
    summary = tracked(100).map(lambda row: (row.number + 1,), "next long").sink(lambda batch: None)

    assert (summary.tracked, summary.completed, summary.failed) == (100, 100, 0)
    assert books(acker) == (100, 100, 0, 0)


def test_a_row_that_raises_fails_only_its_own_message(tracked: MakeFrame, acker: Acker) -> None:
    def invert(row: Row) -> tuple[float]:
        return (1 / (row.number % 10),)

    summary = tracked(100).map(invert, "inverse double").sink(lambda batch: None)

    assert {failure.message_id for failure in summary.failures} == {f"m{i}" for i in range(0, 100, 10)}
    assert {(failure.step, failure.error) for failure in summary.failures} == {
        ("invert", "ZeroDivisionError: division by zero")
    }
    assert books(acker) == (100, 90, 10, 0)


def test_what_a_failed_row_and_its_neighbours_give(tracked: MakeFrame) -> None:
    def split(row: Row) -> list[tuple[str]]:
        if row.number == 1:
            raise ValueError("one")
        return [(row.id,)] * row.number

    summary, rows = collect(tracked(4).flat_map(split, "id string"))

    assert sorted(rows) == [("m2",), ("m2",), ("m3",), ("m3",), ("m3",)]
    assert [failure.message_id for failure in summary.failures] == ["m1"]


def test_a_message_whose_rows_are_all_dropped_is_complete(tracked: MakeFrame, acker: Acker) -> None:
    summary = tracked(10).where("number < 3").flat_map(lambda row: [], "id string").sink(lambda batch: None)

    assert summary.completed == 10
    assert books(acker) == (10, 10, 0, 0)


def test_a_message_fails_if_one_of_its_many_rows_does(tracked: MakeFrame) -> None:
    def strict(row: Row) -> tuple[int]:
        if (row.number, row.copy) == (2, 7):
            raise ValueError("the seventh copy of the second")
        return (row.copy,)

    frame = tracked(5).with_column("copy", F.sequence(F.lit(0), F.lit(9))).explode("copy")

    summary = frame.map(strict, "copy int").sink(lambda batch: None)

    assert [(one.message_id, one.error) for one in summary.failures] == [
        ("m2", "ValueError: the seventh copy of the second")
    ]


def test_an_error_that_says_so_is_fatal(tracked: MakeFrame) -> None:
    def refuse(row: Row) -> tuple[int]:
        raise FailedTuple("never", fatal=True)

    [failure] = tracked(1).map(refuse, "number long").sink(lambda batch: None).failures

    assert (failure.error, failure.attempt, failure.dead) == ("never", 1, True)


def test_values_that_arrow_cannot_hold_fail_their_row(tracked: MakeFrame) -> None:
    def half(row: Row) -> tuple[str]:
        return ("\ud800" if row.number == 2 else "well",)

    [failure] = tracked(5).map(half, "text string").sink(lambda batch: None).failures

    assert (failure.message_id, "surrogates not allowed" in failure.error) == ("m2", True)


def test_a_function_that_exits_fails_its_row(tracked: MakeFrame) -> None:
    def parse(row: Row) -> Row:
        if row.number == 2:
            raise SystemExit(2)
        return row

    [failure] = tracked(5).map(parse, "id string, number long").sink(lambda batch: None).failures

    assert (failure.message_id, failure.error) == ("m2", "SystemExit: 2")


def test_a_single_row_that_does_not_fit_is_not_the_fault_of_the_step(tracked: MakeFrame) -> None:
    def wide(row: Row) -> list[tuple[int, ...]]:
        return [(1, 2)] if row.number == 2 else []

    summary = tracked(5, replays=2).flat_map(wide, "a int").sink(lambda batch: None)

    assert [(one.message_id, one.attempt, one.dead) for one in summary.failures] == [("m2", 3, True)]


def test_everything_may_be_selected(tracked: MakeFrame) -> None:
    frame = tracked(3).select("*", F.lit(1).alias("one"))

    assert frame.columns == ["id", "number", "one"]
    assert frame.sink(lambda batch: None).completed == 3


def test_rows_without_columns_are_rows(tracked: MakeFrame) -> None:
    _, rows = collect(tracked(3).select().map(lambda row: ("seen",), "text string"))

    assert rows == [("seen",)] * 3


def test_native_steps_keep_the_books(tracked: MakeFrame, acker: Acker) -> None:
    frame = (
        tracked(20)
        .select("id", (F.col("number") * 2).alias("double"))
        .with_column("parts", F.array(F.lit(1), F.lit(2)))
        .explode("parts", "part")
        .where("part = 1 OR double > 10")
        .repartition(3)
        .order_by("double")
    )

    def check(row: Row) -> Row:
        if row.double == 12 and row.part == 2:
            raise ValueError("twelve")
        return row

    summary = frame.map(check, frame.schema).sink(lambda batch: None)

    assert [failure.message_id for failure in summary.failures] == ["m6"]
    assert books(acker) == (20, 19, 1, 0)


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_a_batch_that_raises_is_halved_until_the_bad_rows_are_found(tracked: MakeFrame, kind: Any) -> None:
    def root(batch: Any) -> Any:
        if min(batch["number"].to_pylist() if isinstance(batch, pa.RecordBatch) else batch["number"]) < 3:
            raise ValueError("too small")
        if isinstance(batch, pa.RecordBatch):
            return pa.RecordBatch.from_arrays([pc.sqrt(batch["number"])], names=["root"])
        return (batch[["number"]] ** 0.5).rename(columns={"number": "root"})

    summary, rows = collect(tracked(50).map_batches(root, "root double", kind=kind))

    assert {failure.message_id for failure in summary.failures} == {"m0", "m1", "m2"}
    assert {failure.step for failure in summary.failures} == {"root"}
    assert sorted(round(value**2) for (value,) in rows) == list(range(3, 50))


def test_a_batch_function_may_drop_rows_if_it_keeps_the_tracking_column(tracked: MakeFrame) -> None:
    def odd(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.equal(pc.bit_wise_and(batch["number"], 1), 1))

    def fail_nine(row: Row) -> Row:
        if row.number == 9:
            raise ValueError("nine")
        return row

    frame = tracked(20).map_batches(odd, "id string, number long").map(fail_nine, "id string, number long")
    summary, rows = collect(frame)

    assert sorted(number for _, number in rows) == [1, 3, 5, 7, 11, 13, 15, 17, 19]
    assert [failure.message_id for failure in summary.failures] == ["m9"]


@pytest.mark.parametrize("kind", ["long", "binary"])
def test_message_ids_may_be_integers_and_bytes(spark: SparkSession, acker: Acker, kind: str) -> None:
    frame = spark.range(20).select(F.col("id").cast("string").cast("binary") if kind == "binary" else F.col("id"))
    tracked = track(frame, acker=acker, spout="numbers", message_id="id")

    def fail_seven(row: Row) -> Row:
        if row.id in (7, b"7"):
            raise ValueError("seven")
        return row

    [failure] = tracked.map(fail_seven, f"id {kind}").sink(lambda batch: None).failures

    assert failure.message_id == (b"7" if kind == "binary" else 7)


def test_values_of_every_type_pass_a_python_step(spark: SparkSession, acker: Acker) -> None:
    columns = """
        'm' id, cast(1 as tinyint) a, cast(2 as smallint) b, 3 c, 4L d, 1.5f e, 2.5d f, 1.25bd g, true h, X'00ff' i,
        date'2026-11-16' j, timestamp'2026-11-16 05:00:00' k, timestamp_ntz'2026-11-16 05:00:00' l,
        array(1, null) m, struct(1 x, 'y' y) n, map('k', 1) o, null p
    """
    frame = spark.sql(f"select {columns}").withColumn("p", F.col("p").cast("string"))
    tracked = track(frame, acker=acker, spout="numbers", message_id="id")

    summary, rows = collect(tracked.map(lambda row: row, frame.schema))

    assert summary.completed == 1
    assert rows == [tuple(row) for row in frame.collect()]
