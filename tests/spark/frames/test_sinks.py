"""Sinks: messages are complete when they have written, and not before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from redis_acker import Acker
from spark_integration import BadFrame, JobFailed, SinkHangs
from spark_integration.frames import tracked_steps
from tests.spark.frames.books import books
from tests.spark.frames.conftest import MakeFrame


def test_write_takes_any_writer(tracked: MakeFrame, acker: Acker, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "out")

    summary = tracked(10).where("number < 5").write(lambda writer: writer.mode("append").json(path))

    assert sorted(row.id for row in spark.read.json(path).collect()) == [f"m{i}" for i in range(5)]
    assert spark.read.json(path).columns == ["id", "number"]
    assert (summary.completed, books(acker)) == (10, (10, 10, 0, 0))


def test_a_writer_that_fails_leaves_nothing_complete(tracked: MakeFrame, acker: Acker, tmp_path: Path) -> None:
    path = str(tmp_path)  # exists

    with pytest.raises(JobFailed, match=r"10 messages: .*already exists"):
        tracked(10).write(lambda writer: writer.json(path))

    assert books(acker) == (10, 0, 10, 0)


def test_a_writer_that_was_not_told_to_write_is_refused(tracked: MakeFrame, acker: Acker) -> None:
    with pytest.raises(BadFrame, match=r"Nothing was written: end with a call that writes"):
        tracked(10).write(lambda writer: writer.format("json"))

    assert books(acker) == (10, 0, 10, 0)


def test_a_sink_gets_every_row_without_the_tracking_column(tracked: MakeFrame, tmp_path: Path) -> None:
    path = tmp_path / "rows"

    def store(batch: pa.RecordBatch) -> None:
        with path.open("a") as file:
            file.writelines(f"{row}\n" for row in batch.to_pylist())

    tracked(4).sink(store)

    assert sorted(path.read_text().splitlines()) == [str({"id": f"m{i}", "number": i}) for i in range(4)]


def test_a_sink_that_raises_fails_the_messages_of_its_batch(
    tracked: MakeFrame, acker: Acker, spark: SparkSession
) -> None:
    def store(batch: pa.RecordBatch) -> None:
        if 42 in batch["number"].to_pylist():
            raise OSError("disk full")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        summary = tracked(100).repartition(1).order_by("number").sink(store)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    assert {one.message_id for one in summary.failures} == {f"m{i}" for i in range(40, 50)}
    assert {(one.step, one.error) for one in summary.failures} == {("store", "OSError: disk full")}
    assert books(acker) == (100, 90, 10, 0)


def test_a_sink_for_partitions_gets_all_batches_of_one(tracked: MakeFrame, tmp_path: Path) -> None:
    def store(batches: Iterator[pa.RecordBatch]) -> None:
        rows = [row["number"] for batch in batches for row in batch.to_pylist()]
        (tmp_path / f"part-{min(rows)}").write_text(str(sorted(rows)))

    summary = tracked(10).repartition(2, "number").sink(store, per="partition")

    found = sorted(number for path in tmp_path.iterdir() for number in eval(path.read_text()))
    assert (found, summary.completed) == (list(range(10)), 10)


@pytest.mark.parametrize("reads", [0, 1, None], ids=["none", "one batch", "all"])
def test_a_partition_sink_that_raises_fails_the_whole_partition(
    tracked: MakeFrame, acker: Acker, reads: int | None
) -> None:
    def store(batches: Iterator[pa.RecordBatch]) -> None:
        for i, _ in enumerate(batches):
            if i == reads:
                break
        raise OSError("half way")

    summary = tracked(10).repartition(1).sink(store, per="partition")

    assert (summary.completed, summary.failed) == (0, 10)
    assert books(acker) == (10, 0, 10, 0)


def test_a_partition_sink_that_leaves_rows_untaken_fails_them(tracked: MakeFrame, acker: Acker) -> None:
    summary = tracked(10).repartition(1).sink(lambda batches: None, per="partition", name="lazy")

    assert {one.error for one in summary.failures} == {
        "ValueError: the sink returned without taking 10 rows of its partition"
    }
    assert books(acker) == (10, 0, 10, 0)


def test_rows_that_fail_under_a_sink_that_goes_well_fail_alone(tracked: MakeFrame, acker: Acker) -> None:
    def check(row: Row) -> Row:
        if row.number == 3:
            raise ValueError("three")
        return row

    def sink(batch: Any) -> None: ...

    summary = tracked(10).map(check, "id string, number long").sink(sink)

    assert (summary.completed, summary.failed) == (9, 1)
    assert books(acker) == (10, 9, 1, 0)


def test_a_partition_sink_never_commits_an_input_that_was_cut_short(
    tracked: MakeFrame, acker: Acker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark counted more rows than the task is given, as when the other side fails and a worker sees a normal end."""
    committed = tmp_path / "committed"

    def store(batches: Iterator[pa.RecordBatch]) -> None:
        rows = sum(batch.num_rows for batch in batches)
        committed.write_text(str(rows))

    counted = tracked_steps._rows_by_partition
    monkeypatch.setattr(
        tracked_steps,
        "_rows_by_partition",
        lambda frame: {partition: rows + 1 for partition, rows in counted(frame).items()},
    )

    with pytest.raises(JobFailed, match=r"A partition has 11 rows, and its input ended after 10"):
        tracked(10).repartition(1).sink(store, per="partition")

    assert not committed.exists()
    assert books(acker)[1] == 0


def test_a_sink_for_rows_fails_only_the_rows_that_it_refuses(tracked: MakeFrame, acker: Acker, tmp_path: Path) -> None:
    def post(row: Row) -> None:
        if row.number % 10 == 3:
            raise ConnectionError("refused")
        (tmp_path / str(row.number)).touch()

    summary = tracked(50).sink(post, per="row", concurrency=4)

    assert {one.message_id for one in summary.failures} == {f"m{i}" for i in range(3, 50, 10)}
    assert len(list(tmp_path.iterdir())) == 45
    assert books(acker) == (50, 45, 5, 0)


def test_calls_of_a_sink_run_at_once_as_many_as_allowed(tracked: MakeFrame, tmp_path: Path) -> None:
    """Each call waits until three are under way: with fewer at once none would return."""

    def post(row: Row) -> None:
        import time

        (tmp_path / str(row.number)).touch()
        while len(list(tmp_path.iterdir())) < 3:
            time.sleep(0.01)

    summary = tracked(3).repartition(1).sink(post, per="row", concurrency=3, sink_timeout_s=60)

    assert summary.completed == 3


def test_a_sink_that_hangs_ends_its_task_and_is_named(tracked: MakeFrame, acker: Acker) -> None:
    def hang(row: Row) -> None:
        import time

        time.sleep(600)

    with pytest.raises(SinkHangs, match=r"A call of sink 'hang' has not returned for 1 s, so its task was ended"):
        tracked(2).sink(hang, per="row", sink_timeout_s=1)
    assert books(acker)[1] == 0
    assert books(acker)[3] == 0


def test_rows_left_out_by_conditions_are_complete_and_not_sunk(tracked: MakeFrame, acker: Acker) -> None:
    """The second condition would fail for rows that the first leaves out."""
    frame = tracked(20).where("number > 0").where("10 / number < 2")

    def check(batch: pa.RecordBatch) -> None:
        assert min(batch["number"].to_pylist()) > 5

    summary = frame.sink(check)

    assert (summary.completed, summary.failed) == (20, 0)
    assert books(acker) == (20, 20, 0, 0)
