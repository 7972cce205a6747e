"""What is shown of a run while it works, and how many messages it has, where that is cheap to know."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker
from redis_acker.errors import MemoryFull
from spark_integration import track
from spark_integration.frames.fingerprint import known_count
from spark_integration.runs import watch
from spark_integration.runs.watch import Watch, progress_line
from tests.waiting import wait_until


def test_the_line_has_a_bar_the_rate_and_the_time_left() -> None:
    line = progress_line("orders", 400_000, 80_000, 12.0, 0.48)
    assert line == (
        "orders: [#########-----------] 48%, 400,000 completed, 80,000 failed, 40,000/s, 12 s, about 13 s left"
    )


def test_without_a_total_there_is_no_bar() -> None:
    assert progress_line("orders", 10, 2, 2.0, None) == "orders: 10 completed, 2 failed, 6/s, 2 s"


def test_what_was_complete_before_does_not_speed_up_what_is_left() -> None:
    """Half was done by an earlier run; a quarter takes 10 s, and so does the other."""
    line = progress_line("orders", 250, 0, 10.0, 0.75, before=500)
    assert line == "orders: [###############-----] 75%, 750 completed, 0 failed, 25/s, 10 s, about 10 s left"


@pytest.mark.parametrize(("share", "bar"), [(0.0, "[--------------------] 0%"), (1.7, "[####################] 100%")])
def test_a_bar_is_never_longer_than_it_is(share: float, bar: str) -> None:
    """Messages that fail and come again count twice."""
    assert bar in progress_line("orders", 0, 0, 1.0, share)


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_files_that_say_how_many_rows_they_have_are_counted(spark: SparkSession, tmp_path: Path, format: str) -> None:
    spark.range(1234).write.format(format).save(str(tmp_path / "in"))
    files = spark.read.format(format).load(str(tmp_path / "in"))
    assert known_count(files) == known_count(files.select(F.col("id") + 1)) == 1234
    assert known_count(files.where("id < 10")) is None


def test_other_inputs_are_not_counted_for_it(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(10).write.json(str(tmp_path / "in"))
    assert known_count(spark.read.json(str(tmp_path / "in"))) is None
    assert known_count(spark.range(100, 0, -3)) == 34


def test_the_bar_of_a_job_whose_messages_are_counted(
    spark: SparkSession, acker: Acker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(row: object) -> None:
        import time

        time.sleep(0.02)

    monkeypatch.setattr(watch, "_LOOK_EVERY_S", 0.05)
    track(spark.range(0, 100, 1, 2), acker=acker, spout="numbers", message_id="id", progress=True).sink(slow, per="row")
    shares = re.findall(r"\] (\d+)%, (\d+) completed, 0 failed, ", capsys.readouterr().err)
    assert all(share == completed for share, completed in shares)
    assert {"0", "100"} <= {share for share, _ in shares}


class Unreadable:
    """A run whose failures cannot be noted, because the store has no memory for them."""

    name = "numbers"
    looks = 0

    def renew_lease(self) -> None:
        pass

    def extend(self) -> None:
        pass

    def counts(self) -> tuple[int, int]:
        self.looks += 1
        raise MemoryFull("no memory is left")


def test_a_full_store_does_not_end_a_job(spark: SparkSession, acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers wait for it too."""
    monkeypatch.setattr(watch, "_LOOK_EVERY_S", 0.01)
    run = Unreadable()
    watched = Watch(spark, acker, [run], tag="job", max_failures=None, progress=False, total=lambda: (0, None))
    watched.start()
    wait_until(lambda: run.looks > 2)
    watched.stop()

    watched.check()
