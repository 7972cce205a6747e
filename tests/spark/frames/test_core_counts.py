"""A job with a shuffle while executors come and go: its messages are read again as they were read when they were made
pending, or it could not tell which of them have failed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession

from redis_acker import Acker
from spark_integration import track
from tests.spark.frames.books import books

ROWS, FAILED = 2_000, 4
CORES, OPEN_COST = "spark.default.parallelism", "spark.sql.files.openCostInBytes"


@pytest.fixture
def set_cores(spark: SparkSession) -> Iterator[Callable[[int], object]]:
    """As if Spark had so many cores by now."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get(CORES)
    yield lambda cores: conf.set(CORES, str(cores))
    conf.set(CORES, before)


def files(spark: SparkSession, path: Path) -> DataFrame:
    spark.range(0, ROWS, 1, 1).write.parquet(str(path))
    return spark.read.parquet(str(path))


def shuffled(spark: SparkSession, path: Path) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).repartition(3, "id")


def fail(row: Row) -> Row:
    if row.id % (ROWS // FAILED) == 7:
        raise ValueError("told to")
    return row


@pytest.mark.parametrize("read", [files, shuffled])
def test_other_cores_when_failed_messages_are_looked_for(
    spark: SparkSession,
    acker: Acker,
    tmp_path: Path,
    set_cores: Callable[[int], object],
    read: Callable[[SparkSession, Path], DataFrame],
) -> None:
    def save(writer: DataFrameWriter) -> None:
        writer.format("noop").mode("overwrite").save()
        set_cores(9)

    frame = read(spark, tmp_path / "in")
    spark.conf.set(OPEN_COST, "1")  # so that a small file is split too
    try:
        summary = track(frame, acker=acker, spout="numbers", message_id="id").map(fail, "id long").write(save)
    finally:
        spark.conf.unset(OPEN_COST)

    assert (summary.completed, summary.failed) == (ROWS - FAILED, FAILED)
    assert books(acker) == (ROWS, ROWS - FAILED, FAILED, 0)
    assert spark.conf.get("spark.sql.leafNodeDefaultParallelism", None) is None
