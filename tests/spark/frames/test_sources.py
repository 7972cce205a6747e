"""Frames that give other rows when they are read again: what is completed is what the job has read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker
from spark_integration import track
from spark_integration.frames.repeatable import is_repeatable
from tests.spark.frames.books import books


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> DataFrame:
    spark.range(100).write.parquet(str(tmp_path / "files"))
    return spark.read.parquet(str(tmp_path / "files"))


def test_a_frame_that_shrinks_is_read_once(spark: SparkSession, acker: Acker, tmp_path: Path) -> None:
    """Ten rows at the first reading, three at every later one."""
    flag, written = tmp_path / "read", tmp_path / "written"

    def rows(_: int) -> list[tuple[int]]:
        first = not flag.exists()
        flag.touch()
        return [(i,) for i in range(10 if first else 3)]

    frame = spark.createDataFrame(spark.sparkContext.parallelize([0], 1).flatMap(rows), "id long")

    def note(batch: Any) -> None:
        with written.open("a") as file:
            file.writelines(f"{one}\n" for one in batch["id"].to_pylist())

    summary = track(frame, acker=acker, spout="numbers", message_id="id").sink(note)

    assert summary.completed == len(written.read_text().split())
    assert books(acker) == (summary.tracked, summary.completed, 0, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.limit(5),
        lambda frame: frame.sample(0.5),
        lambda frame: frame.dropDuplicates(["id"]),
        lambda frame: frame.groupBy().agg(F.first("id").alias("id")),
        lambda frame: frame.withColumn("random", F.rand()),
        lambda frame: frame.mapInArrow(lambda batches: batches, "id long"),
        lambda frame: frame.join(frame.limit(3), "id"),
    ],
    ids=["limit", "sample", "duplicates", "first", "random", "python", "joined limit"],
)
def test_what_may_give_other_rows_is_stored_first(files: DataFrame, change: Callable[[DataFrame], DataFrame]) -> None:
    assert not is_repeatable(change(files))


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame.where("id > 3").select((F.col("id") * 2).alias("id")),
        lambda frame: frame.union(frame).orderBy("id").repartition(3),
        lambda frame: frame.join(frame.select("id"), "id"),
        lambda frame: frame.limit(5).localCheckpoint(),
    ],
    ids=["files", "filter", "union", "join", "stored"],
)
def test_what_gives_the_same_rows_is_not(files: DataFrame, change: Callable[[DataFrame], DataFrame]) -> None:
    assert is_repeatable(change(files))
