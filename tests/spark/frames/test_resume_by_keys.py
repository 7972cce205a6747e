"""With resume='keys' a run goes on where another died, also when its input is split into other partitions."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from redis_acker import Acker, DeadLetters
from redis_acker.retries.book import RetryBook
from spark_integration import BadFrame
from tests.backends import Servers
from tests.spark.frames.books import books
from tests.spark.frames.killed import (
    BATCH_ROWS,
    CORES,
    DONE,
    ROWS,
    SPOUT,
    Hold,
    Job,
    keys_of_runs,
    kill_in_the_middle,
    tracked_files,
    write_files,
)

pytestmark = pytest.mark.full

#: In the session of the tests Spark makes four partitions of the files, in the killed driver two.
OTHER_CORES = {"spark.default.parallelism": "2"}

FAILED = 2


def run_again(acker: Acker, spark: SparkSession, directory: Path, **options: Any) -> Any:
    return Job(str(directory)).run(tracked_files(spark, acker, directory / "in", **{"resume": "keys", **options}))


@pytest.fixture
def killed(acker: Acker, tmp_path: Path) -> Path:
    """The directory of a run on other cores that was killed."""
    write_files(tmp_path / "in")
    kill_in_the_middle(acker, tmp_path, OTHER_CORES, resume="keys")
    return tmp_path


def test_the_next_run_goes_on_in_other_partitions(
    killed: Path, acker: Acker, spark: SparkSession, servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that is complete is sunk again, what failed gets its next attempt, and each message is counted once."""
    assert len(Job(str(killed)).sunk()) == DONE - FAILED

    summary = run_again(acker, spark, killed)

    assert (summary.tracked, summary.completed, summary.failed) == (ROWS, ROWS, 0)
    assert summary.completed_before == DONE - FAILED
    assert Counter(Job(str(killed)).sunk()) == dict.fromkeys(range(ROWS), 1)
    [said] = [record.getMessage() for record in caplog.records if "continuing with the rest" in record.getMessage()]
    assert said.startswith(f"{DONE - FAILED} messages of spout numbers were completed by the run of ")
    assert RetryBook(acker, SPOUT).load() == {}
    assert len(DeadLetters(acker, spout=SPOUT)) == 0
    _, completed, _, pending = books(acker)
    assert (completed, pending) == (ROWS, 0)
    assert keys_of_runs(acker) == []
    assert run_again(acker, spark, killed).completed_before == 0


@pytest.mark.parametrize("holds", ["before ack", "after ack"])
def test_what_was_sunk_is_completed_and_not_sunk_again(
    acker: Acker, tmp_path: Path, spark: SparkSession, holds: Hold
) -> None:
    """Workers are killed when the sink has taken their third batch: before it is acked, and after."""
    write_files(tmp_path / "in")
    kill_in_the_middle(acker, tmp_path, OTHER_CORES, holds=holds, resume="keys")
    sunk = DONE + CORES * BATCH_ROWS - FAILED
    assert len(Job(str(tmp_path)).sunk()) == sunk

    summary = run_again(acker, spark, tmp_path)

    assert (summary.tracked, summary.completed, summary.failed) == (ROWS, ROWS, 0)
    assert summary.completed_before == sunk
    assert Counter(Job(str(tmp_path)).sunk()) == dict.fromkeys(range(ROWS), 1)
    _, completed, _, pending = books(acker)
    assert (completed, pending) == (ROWS, 0)


def test_it_goes_on_after_a_second_death(killed: Path, acker: Acker, spark: SparkSession) -> None:
    """Each of the runs that died has kept the keys of what it did."""
    for held in killed.glob("held *"):
        held.unlink()
    kill_in_the_middle(acker, killed, {"spark.default.parallelism": "4"}, holds="after ack", resume="keys")
    before = Counter(Job(str(killed)).sunk())
    assert before.total() > DONE
    assert set(before.values()) == {1}

    summary = run_again(acker, spark, killed)

    assert (summary.tracked, summary.completed) == (ROWS, ROWS)
    assert Counter(Job(str(killed)).sunk()) == dict.fromkeys(range(ROWS), 1)
    assert books(acker)[1] == ROWS


def test_the_keys_of_messages_take_eight_bytes_each(killed: Path, acker: Acker, servers: Servers) -> None:
    stored = servers.client("redis-7.0").hgetall(acker.shards.keys[0].done_keys(acker.spout_number(SPOUT)))
    assert stored.pop(b"format") == b"1"
    assert sum(len(value) - 8 for value in stored.values()) == 8 * DONE


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (True, "keys", "it kept no keys: it was not started with resume='keys'"),
        ("keys", True, "an earlier run with resume='keys' died, and only another of that kind can go on with it"),
        ("keys", False, "it was told to, with resume=False"),
    ],
)
def test_otherwise_it_starts_over_and_says_why(
    acker: Acker,
    tmp_path: Path,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    before: bool | str,
    now: bool | str,
    why: str,
) -> None:
    write_files(tmp_path / "in")
    kill_in_the_middle(acker, tmp_path, resume=before)

    summary = run_again(acker, spark, tmp_path, resume=now)

    assert (summary.completed, summary.completed_before) == (ROWS, 0)
    assert why in caplog.text
    assert books(acker)[3] == 0


def test_changed_files_are_not_passed_over(
    killed: Path, acker: Acker, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    os.utime(killed / "in" / "part-0.json", (1, 1))

    summary = run_again(acker, spark, killed)

    assert (summary.completed, summary.completed_before) == (ROWS, 0)
    assert "starts from the beginning: an earlier run died, but its input was different" in caplog.text


def test_another_word_for_it_is_refused(acker: Acker, tmp_path: Path, spark: SparkSession) -> None:
    write_files(tmp_path / "in")
    with pytest.raises(BadFrame, match="resume is True, False or 'keys', not 'key'"):
        tracked_files(spark, acker, tmp_path / "in", resume="key")
