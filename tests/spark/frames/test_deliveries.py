"""Rows of another application's messages: acked by their edges, in whatever sets and partitions they come."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, Anchors, RetryPolicy, new_edges
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import Place, RunAbout, field_of
from spark_integration import BadFrame, JobFailed, Outcomes, Summary, TrackedFrame, track
from spark_integration.runs.keeping import GC_THRESHOLD
from tests.spark.frames.books import books
from tests.spark.frames.conftest import MakeFrame

Sink = Callable[[TrackedFrame], Summary]

#: With and without a shuffle: executors ack, or the driver does.
SINKS: dict[str, Sink] = {
    "sink": lambda frame: frame.sink(lambda batch: None),
    "shuffle": lambda frame: frame.repartition(3).sink(lambda batch: None),
    "collect": lambda frame: frame.collect()[1],
}


@pytest.fixture(params=SINKS)
def sink(request: pytest.FixtureRequest) -> Sink:
    return SINKS[request.param]


@pytest.fixture
def between(tracked: MakeFrame, spark: SparkSession, tmp_path: Path) -> DataFrame:
    """Three rows of each of twenty messages."""
    first = tracked(20).flat_map(lambda row: [(row.number, part) for part in range(3)], "number long, part int")
    first.to_df().write.parquet(str(tmp_path / "between"))
    return spark.read.parquet(str(tmp_path / "between"))


def take(frame: DataFrame, acker: Acker, **options: Any) -> TrackedFrame:
    return track(frame, acker=acker, name="second", anchors="anchors", **options)


def test_rows_that_are_twice_in_one_set_count_once(between: DataFrame, acker: Acker, sink: Sink) -> None:
    summary = sink(take(between.union(between.where("part < 2")).coalesce(1), acker))
    assert (summary.tracked, summary.completed, summary.completed_before) == (100, 100, 40)
    assert books(acker) == (20, 20, 0, 0)


def test_rows_that_two_tasks_have_at_the_same_time_are_acked_once(
    between: DataFrame, acker: Acker, tmp_path: Path
) -> None:
    """Both work on them, since nobody has acked them when they ask: effects are at least once."""
    together = tmp_path / "together"
    together.mkdir()

    def wait_for_the_other(row: Row) -> Row:
        import os

        from tests.waiting import wait_until

        (together / str(os.getpid())).touch()
        wait_until(lambda: len(list(together.iterdir())) == 2, timeout_s=60)
        return row

    copies = [between.withColumn("copy", F.lit(copy)) for copy in range(2)]
    twice = copies[0].union(copies[1]).repartitionByRange(2, "copy")
    summary = take(twice, acker).map(wait_for_the_other, twice.drop("anchors").schema).sink(lambda batch: None)
    assert (summary.completed, summary.failed) == (120, 0)
    assert books(acker) == (20, 20, 0, 0)


def test_sets_that_overlap_complete_every_message_once(between: DataFrame, acker: Acker, sink: Sink) -> None:
    assert sink(take(between.where("part < 2"), acker)).completed_before == 0
    assert sink(take(between.where("part < 2").repartition(5), acker)).completed_before == 40
    assert books(acker) == (20, 0, 0, 20)
    assert sink(take(between.where("part > 0"), acker)).completed_before == 20
    assert books(acker) == (20, 20, 0, 0)
    assert sink(take(between, acker)).completed_before == 60


def test_what_was_done_is_not_done_again(between: DataFrame, acker: Acker, tmp_path: Path) -> None:
    done = str(tmp_path / "done")

    def note(batch: pa.RecordBatch) -> None:
        with open(done, "a") as file:
            file.writelines(f"{row['number']} {row['part']}\n" for row in batch.to_pylist())

    take(between.where("part = 0"), acker).sink(note)
    take(between.union(between).coalesce(1), acker).sink(note)
    take(between, acker).repartition(2).sink(note)
    lines = Path(done).read_text().split("\n")[:-1]
    assert sorted(lines) == sorted(f"{number} {part}" for number in range(20) for part in range(3))


def test_workers_collect_garbage_rarely_while_they_work_on_deliveries(
    between: DataFrame, acker: Acker, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"

    def look(batch: pa.RecordBatch) -> None:
        import gc

        with open(seen, "a") as file:
            file.write(f"{gc.get_threshold()[0]}\n")

    take(between, acker).sink(look)
    assert {*seen.read_text().split()} == {str(GC_THRESHOLD)}


def test_a_row_that_raises_fails_its_message_at_once_and_no_other(between: DataFrame, acker: Acker, sink: Sink) -> None:
    def strict(row: Row) -> Row:
        if (row.number, row.part) == (4, 1):
            raise ValueError("four")
        return Row(row.number)

    summary = sink(take(between.where("part > 0"), acker).map(strict, "number long"))
    [failure] = summary.failures
    assert (failure.step, failure.error, summary.completed, summary.failed) == ("strict", "ValueError: four", 39, 1)
    assert books(acker) == (20, 0, 1, 19)
    later = sink(take(between, acker).map(strict, "number long"))  # its message is over: nothing raises
    assert (later.failed, later.completed_before) == (0, 41)
    assert books(acker) == (20, 19, 1, 0)


def test_a_job_that_fails_leaves_the_rows_as_they_are(between: DataFrame, acker: Acker, sink: Sink) -> None:
    def broken(batches: Any) -> Any:
        yield from batches
        raise RuntimeError("the disk is full")

    with pytest.raises(JobFailed, match="the disk is full"):
        sink(take(between.mapInArrow(broken, between.schema), acker, stable_source=True))
    assert books(acker)[2] == 0
    sink(take(between, acker))
    assert books(acker) == (20, 20, 0, 0)


def test_rows_that_a_condition_leaves_out_are_done(between: DataFrame, acker: Acker, sink: Sink) -> None:
    sink(take(between, acker).where("part = 5"))
    assert books(acker) == (20, 20, 0, 0)


def test_rows_of_an_explode_are_not_taken_for_deliveries_that_came_twice(
    between: DataFrame, acker: Acker, sink: Sink
) -> None:
    exploded = take(between, acker).with_column("copy", F.explode(F.array(F.lit(1), F.lit(2))))
    rows, summary = exploded.collect()
    assert (len(rows), summary.tracked, books(acker)) == (120, 60, (20, 20, 0, 0))


# -- what leaves through a sink --------------------------------------------------------------------------------------


def rows_in(path: Path, spark: SparkSession) -> DataFrame:
    return spark.read.schema("number long, anchors binary").parquet(str(path))


def writer(path: Path) -> Callable[[pa.RecordBatch], None]:
    def write(batch: pa.RecordBatch) -> None:
        import uuid

        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_batches([batch]), f"{path}/{uuid.uuid4()}.parquet")

    path.mkdir(exist_ok=True)
    return write


def twice(row: Row) -> list[Row]:
    return [Row(row.number), Row(row.number)]


def test_rows_leave_through_a_sink_and_come_in_through_another_job(
    tracked: MakeFrame, acker: Acker, spark: SparkSession, tmp_path: Path
) -> None:
    first = tracked(30).flat_map(twice, "number long").sink(writer(tmp_path / "a"), anchors="anchors")
    assert (first.tracked, first.completed, first.handed_over, first.failed) == (30, 0, 30, 0)
    assert "30 handed over" in str(first)
    assert books(acker) == (30, 0, 0, 30)
    second = take(rows_in(tmp_path / "a", spark), acker).flat_map(twice, "number long")
    assert second.sink(writer(tmp_path / "b"), anchors="anchors").completed == 60
    assert books(acker) == (30, 0, 0, 30)
    rows = rows_in(tmp_path / "b", spark)
    assert rows.select("anchors").distinct().count() == 120
    for row in rows.where("number % 2 = 0").collect():
        anchors = Anchors.from_bytes(bytes(row.anchors))
        acker.ack_edges(list(anchors), list(anchors.values()))
    assert books(acker) == (30, 15, 0, 15)
    take(rows, acker).sink(lambda batch: None)
    assert books(acker) == (30, 30, 0, 0)


def test_a_message_that_becomes_no_row_is_complete(tracked: MakeFrame, acker: Acker, tmp_path: Path) -> None:
    frame = tracked(10).flat_map(lambda row: [Row(row.number)] * (row.number % 2), "number long")
    frame.sink(writer(tmp_path / "a"), anchors="anchors")
    assert books(acker) == (10, 5, 0, 5)


def dying_writer(path: Path) -> Callable[[pa.RecordBatch], None]:
    """Ends its worker after it has written its first batch."""
    write, died = writer(path), path.parent / "died"

    def write_and_die(batch: pa.RecordBatch) -> None:
        import os

        write(batch)
        if not died.exists():
            died.touch()
            os._exit(1)

    return write_and_die


@pytest.mark.parametrize("application", ["first", "second"])
def test_what_is_worked_on_again_leaves_with_the_same_anchors(
    tracked: MakeFrame, acker: Acker, spark: SparkSession, tmp_path: Path, application: str
) -> None:
    """A worker died after its sink, before its acks: the next attempt writes the same rows."""
    frame = tracked(10)
    if application == "second":
        frame.sink(writer(tmp_path / "a"), anchors="anchors")
        frame = take(rows_in(tmp_path / "a", spark), acker, stable_source=True)
    frame.flat_map(twice, "number long").sink(dying_writer(tmp_path / "b"), anchors="anchors")
    written = rows_in(tmp_path / "b", spark)
    assert written.select("anchors").distinct().count() == 20
    assert written.count() > 20
    take(written, acker).sink(lambda batch: None)
    assert books(acker) == (10, 10, 0, 0)


def test_a_failure_elsewhere_is_the_next_attempt_of_the_first_application(
    tracked: MakeFrame, acker: Acker, spark: SparkSession, numbers: Callable[[int], DataFrame], tmp_path: Path
) -> None:
    def fail_fours(row: Row) -> Row:
        if row.number % 5 == 4:
            raise ValueError("four")
        return row

    policy = RetryPolicy(max_attempts=2, first_ms=0)
    attempts = []
    for attempt in range(3):
        with Outcomes(acker, spout="numbers", retries=policy) as outcomes:
            due = [f"m{i}" for i in range(10) if outcomes.is_due(f"m{i}")]
            attempts.append((due, sorted(map(str, outcomes.completed)), sorted(map(str, outcomes.dead))))
        if due:
            some = numbers(10).where(F.col("id").isin(due))
            frame = track(some, acker=acker, spout="numbers", message_id="id", retries=policy, stable_source=True)
            path = tmp_path / f"a{attempt}"
            assert frame.select("number").sink(writer(path), anchors="anchors").handed_over == len(due)
            take(rows_in(path, spark), acker).map(fail_fours, "number long").sink(lambda batch: None)
    others = [f"m{i}" for i in (0, 1, 2, 3, 5, 6, 7, 8)]
    everything = sorted(f"m{i}" for i in range(10))
    # What is complete is told once; the program removes it from its source.
    assert attempts[0] == (everything, [], [])
    assert attempts[1] == (["m4", "m9"], others, [])
    assert attempts[2][2] == ["m4", "m9"]


def test_an_error_inside_of_outcomes_forgets_nothing(
    tracked: MakeFrame, acker: Acker, spark: SparkSession, tmp_path: Path
) -> None:
    tracked(4).sink(writer(tmp_path / "a"), anchors="anchors")
    with Outcomes(acker, spout="numbers") as outcomes:
        assert (outcomes.completed, outcomes.unfinished, outcomes.is_due("m1")) == ([], 4, False)
    take(rows_in(tmp_path / "a", spark), acker).sink(lambda batch: None)
    for _ in range(2):
        with suppress(ZeroDivisionError), Outcomes(acker, spout="numbers") as outcomes:
            assert sorted(map(str, outcomes.completed)) == ["m0", "m1", "m2", "m3"]
            assert not outcomes.is_due("m1")
            raise ZeroDivisionError
    with Outcomes(acker, spout="numbers") as outcomes:
        assert len(outcomes.completed) == 4
    with Outcomes(acker, spout="numbers") as outcomes:
        assert (outcomes.completed, outcomes.unfinished) == ([], 0)


def test_what_a_run_that_died_had_in_work_is_due_at_once(acker: Acker) -> None:
    progress = RunProgress(acker, acker.spout_number("numbers"))
    progress.start("dead", RunAbout("numbers", 0, "there", 1, "", ""))
    portion = progress.begin(Place(field_of(0, 0), 0, 0), 3, 5)
    acker.init(progress.roots_of(portion.first, 3), new_edges(3), message_ids=["m0", "m1", "m2"])
    with Outcomes(acker, spout="numbers") as outcomes:
        assert [outcomes.is_due(f"m{i}") for i in range(3)] == [True] * 3
        assert (outcomes.pending, outcomes.unfinished) == (0, 0)
    assert books(acker) == (3, 0, 3, 0)


def test_mistakes_are_refused(tracked: MakeFrame, between: DataFrame, acker: Acker) -> None:
    with pytest.raises(BadFrame, match="takes either message_id="):
        track(between, acker=acker, spout="numbers")
    with pytest.raises(BadFrame, match="takes either message_id="):
        track(between, acker=acker, spout="numbers", message_id="number", anchors="anchors")
    with pytest.raises(BadFrame, match=r"track\(message_id=\) needs spout="):
        track(between, acker=acker, message_id="number")
    with pytest.raises(BadFrame, match=r"track\(anchors=\) needs name="):
        track(between, acker=acker, anchors="anchors")
    with pytest.raises(BadFrame, match=r"track\(anchors=\) needs name="):
        take(between, acker, replays=1)
    with pytest.raises(BadFrame, match=r"sink\(anchors=\) is for jobs without a shuffle"):
        tracked(3).repartition(2).sink(lambda batch: None, anchors="anchors")
    with pytest.raises(BadFrame, match="replays are for messages that are complete when the job is"):
        tracked(3, replays=1).sink(lambda batch: None, anchors="anchors")
    with pytest.raises(BadFrame, match="has a column 'number' already"):
        tracked(3).sink(lambda batch: None, anchors="number")
