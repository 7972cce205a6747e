"""Structured Streaming: each micro-batch is tracked, and one that is brought again is counted as such."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from redis_acker import Acker
from spark_integration import Summary, track
from tests.spark.frames.books import books
from tests.spark.frames.conftest import AT_ONCE


def run_stream(spark: SparkSession, directory: Path, process: Any) -> None:
    """Works off what is in the directory, from where the last query stopped."""
    stream = spark.readStream.schema("id string, number long").json(str(directory / "in"))
    writer = stream.writeStream.foreachBatch(process).trigger(availableNow=True)
    writer.option("checkpointLocation", str(directory / "state")).start().awaitTermination()


def put(directory: Path, name: str, numbers: range) -> None:
    (directory / "in").mkdir(exist_ok=True)
    (directory / "in" / name).write_text("".join(json.dumps({"id": f"m{i}", "number": i}) + "\n" for i in numbers))


def test_a_micro_batch_that_is_brought_again_ends_complete(spark: SparkSession, acker: Acker, tmp_path: Path) -> None:
    """The first try dies when the job is done and Spark does not know it yet."""
    summaries: list[Summary] = []

    def strict(row: Row) -> Row:
        if row.number == 3:
            raise ValueError("three")
        return row

    def process(batch: DataFrame, batch_id: int) -> None:
        tracked = track(batch, acker=acker, spout="numbers", message_id="id", retries=AT_ONCE)
        summaries.append(tracked.map(strict, "id string, number long").sink(lambda batch: None))
        if len(summaries) == 1:
            raise RuntimeError("killed")

    put(tmp_path, "one.json", range(10))
    with pytest.raises(StreamingQueryException, match="killed"):
        run_stream(spark, tmp_path, process)
    run_stream(spark, tmp_path, process)
    put(tmp_path, "two.json", range(10, 15))
    run_stream(spark, tmp_path, process)

    assert [(one.tracked, one.completed) for one in summaries] == [(10, 9), (10, 9), (5, 5)]
    assert [[(one.message_id, one.attempt) for one in summary.failures] for summary in summaries] == [
        [("m3", 1)],
        [("m3", 2)],
        [],
    ]
    assert books(acker) == (25, 23, 2, 0)
