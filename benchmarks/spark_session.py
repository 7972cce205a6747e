"""The Spark session and the data that benchmarks share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_integration import TrackedFrame, TrackedStream
from spark_integration.frames.rows import row_maker
from spark_integration.runs.keeping import collecting_rarely

ROWS = 1_000_000
PAYLOAD_BYTES = 200
CORES = 2
PARSED = "id string, first string, words long, payload string"
SCORED = "id string, score long, payload string"
COUNT = "rows long"
BATCH_ROWS = 10_000
"""Rows of a batch, as Spark cuts them by default."""

Tracked = TypeVar("Tracked", TrackedFrame, TrackedStream)


def session(directory: str, master: str = f"local[{CORES}]") -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("redis-acker benchmark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.local.dir": directory,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def payload() -> Any:
    return F.repeat(F.lit("lorem ipsum "), PAYLOAD_BYTES // 12)


def store_rows(spark: SparkSession, path: Path, column: Any, rows: int = ROWS, *, files: int = 4) -> DataFrame:
    """Numbered rows with a column payload, in files."""
    numbers = spark.range(0, rows, 1, files).withColumnRenamed("id", "number")
    frame = numbers.select(F.format_string("order-%010d", "number").alias("id"), column.alias("payload"))
    frame.write.parquet(str(path))
    return spark.read.parquet(str(path))


def parse(row: Row) -> tuple[Any, ...]:
    words = row.payload.split()
    return row.id, words[0], len(words), row.payload


def score(row: Row) -> tuple[Any, ...]:
    return row.id, row.words * len(row.first), row.payload


def sink(batch: pa.RecordBatch) -> None: ...


def two_steps(tracked: Tracked) -> Tracked:
    return tracked.map(parse, PARSED).map(score, SCORED)


def count_fused(frame: DataFrame, *, gc: bool = False) -> int:
    """The same steps and a sink, fused by hand, with rows as tracked steps get them. gc: and with Python's garbage
    collector set as tracked tasks set it."""
    counts = frame.mapInArrow(_fused_collecting_rarely if gc else _fused, COUNT).agg(F.sum("rows"))
    [[rows]] = counts.collect()
    return int(rows)


def _fused_collecting_rarely(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with collecting_rarely():
        yield from _fused(batches)


def _fused(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """parse, score and sink in plain PySpark, in one pass. Yields the count."""
    count = 0
    parsed_row = row_maker(("id", "first", "words", "payload"))
    for batch in batches:
        make_row = row_maker(tuple(batch.schema.names))
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        columns = zip(*[score(parsed_row(parse(make_row(values)))) for values in rows], strict=True)
        made = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["id", "score", "payload"])
        sink(made)
        count += made.num_rows
    yield pa.RecordBatch.from_pylist([{"rows": count}])
