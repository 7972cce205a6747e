"""The run that follows a driver which was killed goes on where it stopped, or says why it does not."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from redis_acker import Acker, DeadLetters
from redis_acker.retries.book import RetryBook
from spark_integration import Summary, TooManyFailures, track
from spark_integration.frames import fused
from spark_integration.runs import watch
from spark_integration.runs.booked import BookedRun
from tests.backends import Servers
from tests.spark.frames.books import books
from tests.spark.frames.conftest import AT_ONCE, MakeFrame
from tests.spark.frames.killed import (
    BATCH_ROWS,
    CORES,
    DONE,
    FILES,
    ROWS,
    ROWS_OF_A_FILE,
    SCHEMA,
    SPOUT,
    Hold,
    Job,
    keys_of_runs,
    kill_in_the_middle,
    tracked_files,
    write_files,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.full

#: Each of the files that the dead run was at has one, and it is among those that are done.
FAILED = 2


@pytest.fixture
def killed(acker: Acker, tmp_path: Path) -> Path:
    """The directory of a run that was killed."""
    write_files(tmp_path / "in")
    kill_in_the_middle(acker, tmp_path)
    assert books(acker)[1] == DONE - FAILED
    return tmp_path


def test_the_next_run_goes_on(
    killed: Path, acker: Acker, spark: SparkSession, servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    """What is done is not sunk again. Messages that failed in the dead run come again, at their next attempt."""
    before = Counter(Job(str(killed)).sunk())
    assert len(before) == DONE - FAILED
    assert set(RetryBook(acker, SPOUT).load()) <= {"m00007", "m00107", "m00207", "m00307"}

    summary = Job(str(killed)).run(tracked_files(spark, acker, killed / "in"))

    assert (summary.tracked, summary.completed, summary.failed) == (ROWS, ROWS, 0)
    assert summary.completed_before == DONE - FAILED
    assert Counter(Job(str(killed)).sunk()) == dict.fromkeys(range(ROWS), 1)
    [said] = [record.getMessage() for record in caplog.records if "continuing with the rest" in record.getMessage()]
    assert said.startswith(f"{DONE - FAILED} messages of spout numbers were completed by the run of ")
    assert RetryBook(acker, SPOUT).load() == {}
    assert len(DeadLetters(acker, spout=SPOUT)) == 0
    assert keys_of_runs(acker) == []
    assert Job(str(killed)).run(tracked_files(spark, acker, killed / "in")).completed_before == 0


def test_the_next_run_says_how_many_there_are_in_all_if_that_is_known(
    killed: Path, acker: Acker, spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "known_count", lambda frame: ROWS)  # as of other files than these

    Job(str(killed)).run(tracked_files(spark, acker, killed / "in"))

    assert f"{DONE - FAILED} of {ROWS} messages of spout numbers were completed by the run of " in caplog.text


@pytest.mark.parametrize("holds", ["before ack", "after ack"])
def test_what_was_sunk_is_counted_though_nobody_had_time_to_say_so(
    acker: Acker, tmp_path: Path, spark: SparkSession, holds: Hold
) -> None:
    """Workers are killed when the sink has taken their third batch: before it is acked, and after."""
    write_files(tmp_path / "in")
    kill_in_the_middle(acker, tmp_path, holds=holds)
    sunk = DONE + CORES * BATCH_ROWS - FAILED
    assert len(Job(str(tmp_path)).sunk()) == sunk

    summary = Job(str(tmp_path)).run(tracked_files(spark, acker, tmp_path / "in"))

    assert (summary.tracked, summary.completed, summary.failed) == (ROWS, ROWS, 0)
    assert summary.completed_before == (sunk if holds == "after ack" else DONE - FAILED)
    assert Counter(Job(str(tmp_path)).sunk()) == dict.fromkeys(range(ROWS), 1)
    assert books(acker)[3] == 0


def test_a_message_that_fails_again_is_given_up_with_its_row(killed: Path, acker: Acker, spark: SparkSession) -> None:
    """Its last attempt is that of the run which goes on. A completion removes its letter."""
    summary = Job(str(killed), fails=True).run(tracked_files(spark, acker, killed / "in"))

    assert (summary.completed, summary.failed, summary.dead) == (ROWS - FILES, FILES, FAILED)
    letters = {letter.message_id: letter for letter in DeadLetters(acker, spout=SPOUT)}
    assert len(letters) == FAILED
    for name, letter in letters.items():
        assert [one.attempt for one in letter.history] == [1, 2]
        assert letter.payload == [name, int(str(name)[1:])]

    again = Job(str(killed)).run(tracked_files(spark, acker, killed / "in"))

    assert (again.completed, again.failed) == (ROWS, 0)
    assert len(DeadLetters(acker, spout=SPOUT)) == 0
    assert RetryBook(acker, SPOUT).load() == {}


class Dying:
    """A job over numbers, whose driver dies when all is done but the end of its run, and whose seventh row fails then.
    Notes what it passes over Spark's rows for."""

    def __init__(self, acker: Acker, spark: SparkSession, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._acker, self._spark, self.job = acker, spark, Job(str(directory), fails=True)
        self.replays: list[bool] = []
        real = fused._pass

        def note(frame: DataFrame, worker: fused.FusedSink) -> int:
            self.replays.append(worker.is_replay)
            return real(frame, worker)

        monkeypatch.setattr(fused, "_pass", note)
        with monkeypatch.context() as dying:
            dying.setattr(BookedRun, "summary", lambda run, rows: sys.exit("killed"))
            with pytest.raises(SystemExit):
                self.run()
        self.job = Job(str(directory))

    def run(self) -> Summary:
        numbers = self._spark.range(0, ROWS_OF_A_FILE, 1, 3).selectExpr("concat('m', id) as id", "id as number")
        tracked = track(numbers, acker=self._acker, spout=SPOUT, message_id="id", retries=AT_ONCE)
        summary: Summary = self.job.run(tracked)
        return summary


def test_what_was_all_done_is_not_read_again(
    acker: Acker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the message that failed is."""
    dying = Dying(acker, spark, tmp_path, monkeypatch)

    summary = dying.run()

    assert (summary.tracked, summary.completed, summary.failed) == (ROWS_OF_A_FILE, ROWS_OF_A_FILE, 0)
    assert summary.completed_before == ROWS_OF_A_FILE - 1
    assert dying.replays == [False, True]
    assert Counter(dying.job.sunk()) == dict.fromkeys(range(ROWS_OF_A_FILE), 1)
    assert books(acker)[3] == 0


def test_rows_are_read_again_if_the_source_has_more_than_tasks_came_to_the_end_of(
    acker: Acker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of an input proves nothing: a task may have seen one too early."""
    dying = Dying(acker, spark, tmp_path, monkeypatch)
    monkeypatch.setattr(fused, "known_count", lambda frame: ROWS_OF_A_FILE + 1)

    summary = dying.run()

    assert (summary.tracked, summary.completed) == (ROWS_OF_A_FILE, ROWS_OF_A_FILE)
    assert dying.replays == [False, False, True]
    assert Counter(dying.job.sunk()) == dict.fromkeys(range(ROWS_OF_A_FILE), 1)


def test_changed_files_are_not_passed_over(
    killed: Path, acker: Acker, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The same names and sizes, written later."""
    write_files(killed / "in")
    os.utime(killed / "in" / "part-0.json", (1, 1))

    summary = Job(str(killed)).run(tracked_files(spark, acker, killed / "in"))

    assert (summary.completed, summary.completed_before) == (ROWS, 0)
    assert set(Counter(Job(str(killed)).sunk()).values()) == {1, 2}
    assert "starts from the beginning: an earlier run died, but its input was different" in caplog.text
    assert books(acker)[3] == 0


def test_it_starts_over_if_it_is_told_to(
    killed: Path, acker: Acker, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    summary = Job(str(killed)).run(tracked_files(spark, acker, killed / "in", resume=False))

    assert (summary.completed, summary.completed_before) == (ROWS, 0)
    assert Counter(Job(str(killed)).sunk()).total() == ROWS + DONE - FAILED
    assert "Spout numbers starts from the beginning: it was told to, with resume=False" in caplog.text


def test_too_many_failures_cancel_a_job_that_goes_on(
    killed: Path, acker: Acker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sink does not return before it is cancelled."""
    monkeypatch.setattr(watch, "_LOOK_EVERY_S", 0.05)

    directory, rows_of_a_file = killed, ROWS // FILES

    def fail(row: Row) -> Row:
        if row.number % rows_of_a_file == rows_of_a_file // 2:  # in the first portion that is to be done
            raise ValueError("told to")
        return row

    def hang(row: Row) -> None:
        if row.number % rows_of_a_file == rows_of_a_file - 1 and not (directory / "not cancelled").exists():
            time.sleep(20)
            (directory / "not cancelled").touch()

    frame = tracked_files(spark, acker, killed / "in", max_failures=0)
    with pytest.raises(TooManyFailures):
        frame.map(fail, SCHEMA).sink(hang, per="row")

    assert not (killed / "not cancelled").exists()


def test_a_run_on_other_cores_starts_over(
    acker: Acker, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path / "in")
    kill_in_the_middle(acker, tmp_path, {"spark.default.parallelism": "2"})

    summary = Job(str(tmp_path)).run(tracked_files(spark, acker, tmp_path / "in"))

    assert (summary.completed, summary.completed_before) == (ROWS, 0)
    assert "split into different partitions (as with another number of cores)" in caplog.text


def test_what_a_killed_run_left_is_failed_by_the_next(
    servers: Servers, acker: Acker, namespace: str, tracked: MakeFrame, tmp_path: Path
) -> None:
    """The driver is killed in the middle of its job. The next run takes the spout over when its lease has ended. It
    does not know the input, so it starts over, and the death of a run is no attempt at its messages."""
    script = f"""
        import os, time
        from pyspark.sql import SparkSession
        from redis_acker import Acker
        from spark_integration import track

        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        frame = spark.createDataFrame([(f"m{{i}}", i) for i in range(20)], "id string, number long")

        def wait(row):
            open({str(tmp_path / "begun")!r}, "w").close()
            time.sleep(600)

        with Acker({servers.get("redis-7.0").url!r}, namespace={namespace!r}) as acker:
            track(frame, acker=acker, spout="numbers", message_id="id").map(wait, "id string").sink(print)
    """
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (tmp_path / "begun").exists(), 120)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert books(acker) == (20, 0, 0, 20)

    def fail_thirds(row: Row) -> Row:
        if row.number % 3 == 0:
            raise ValueError("a third")
        return row

    summary = tracked(20).map(fail_thirds, SCHEMA).sink(lambda batch: None)

    assert (summary.completed, {one.attempt for one in summary.failures}) == (13, {1})
    assert books(acker) == (40, 13, 27, 0)
