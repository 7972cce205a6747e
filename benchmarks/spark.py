"""Tracked Spark jobs against the same jobs untracked, in turns, in one session."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from benchmarks.common import Report, Target, seconds
from redis_acker import Acker
from redis_acker.embedded import EmbeddedServer
from spark_integration import Summary, track

ROWS = 1_000_000
PAYLOAD_BYTES = 200
WORDS = 10
"""Words in a sentence."""
VOCABULARY = 50_000
ROUNDS = 5
WARM_UPS = 2
"""Rounds before those that count: Java compiles what it runs often."""

MOST_PYTHON = 1.15
MOST_SQL = 2.0

PARSED = "id string, first string, words long, payload string"
SCORED = "id string, score long, payload string"


def measure(say: Callable[[str], None]) -> Report:
    """Both jobs, untracked and tracked in turns."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as directory, EmbeddedServer() as server, Acker(server.url) as acker:
        spark = _session(directory)
        facts: dict[str, str | int] = {"spark": spark.version, "server": server.version, "rows": ROWS, "rounds": ROUNDS}
        report = Report("spark", facts)
        say(f"{ROWS:,} rows of {PAYLOAD_BYTES} bytes through two Python steps ...")
        rows = _stored(spark, Path(directory) / "rows", F.repeat(F.lit("lorem ipsum "), PAYLOAD_BYTES // 12))
        _compare(report, "python", MOST_PYTHON, lambda: _python(rows), lambda: _tracked_python(rows, acker))
        say(f"{ROWS:,} sentences into {ROWS * WORDS:,} words, natively ...")
        sentences = _stored(spark, Path(directory) / "sentences", _sentence())
        _compare(report, "sql", MOST_SQL, lambda: _sql(sentences), lambda: _tracked_sql(sentences, acker))
        spark.stop()
    return report


def _compare(
    report: Report, name: str, most: float, untracked: Callable[[], object], tracked: Callable[[], Summary]
) -> None:
    plain_s, tracked_s = [], []
    for _ in range(WARM_UPS + ROUNDS):
        plain_s.append(seconds(untracked))
        tracked_s.append(seconds(lambda: _check(tracked())))
    plain_s, tracked_s = plain_s[WARM_UPS:], tracked_s[WARM_UPS:]
    ratios = [with_it / without for with_it, without in zip(tracked_s, plain_s, strict=True)]
    report.add(f"untracked_{name}_s", f"{name}: untracked, s", median(plain_s))
    report.add(f"tracked_{name}_s", f"{name}: tracked, s", median(tracked_s))
    report.add(f"tracked_{name}", f"{name}: tracked / untracked", median(ratios), Target("<=", most))


def _check(summary: Summary) -> None:
    assert (summary.tracked, summary.completed) == (ROWS, ROWS), summary


# -- two Python steps ----------------------------------------------------------------------------------------------


def parse(row: Row) -> tuple[Any, ...]:
    words = row.payload.split()
    return row.id, words[0], len(words), row.payload


def score(row: Row) -> tuple[Any, ...]:
    return row.id, row.words * len(row.first), row.payload


def _python(frame: DataFrame) -> None:
    parsed = frame.mapInArrow(_plain(parse, ["id", "first", "words", "payload"]), PARSED)
    _write(parsed.mapInArrow(_plain(score, ["id", "score", "payload"]), SCORED).write)


def _plain(function: Callable[[Row], tuple[Any, ...]], names: list[str]) -> Any:
    """A step over rows as one writes it without tracking."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            make_row = Row(*batch.schema.names)
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            columns = zip(*(function(make_row(*values)) for values in rows), strict=True)
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)

    return step


def _tracked_python(frame: DataFrame, acker: Acker) -> Summary:
    tracked = track(frame, acker=acker, spout="rows", message_id="id", progress=False)
    return tracked.map(parse, PARSED).map(score, SCORED).write(_write)


# -- split, explode, count -----------------------------------------------------------------------------------------


def _sentence() -> Any:
    words = [F.format_string("w%05d", F.pmod(F.xxhash64("number", F.lit(i)), F.lit(VOCABULARY))) for i in range(WORDS)]
    return F.concat_ws(" ", *words)


def _sql(frame: DataFrame) -> None:
    words = frame.select(F.explode(F.split("payload", " ")).alias("word"))
    _write(words.groupBy("word").agg(F.count("*").alias("count")).write)


def _tracked_sql(frame: DataFrame, acker: Acker) -> Summary:
    tracked = track(frame, acker=acker, spout="sentences", message_id="id", progress=False)
    words = tracked.select(F.explode(F.split("payload", " ")).alias("word"))
    return words.group_by("word").agg(F.count("*").alias("count")).write(_write)


# -- what both need ------------------------------------------------------------------------------------------------


def _write(writer: Any) -> None:
    writer.format("noop").mode("overwrite").save()


def _stored(spark: SparkSession, path: Path, payload: Any) -> DataFrame:
    numbers = spark.range(0, ROWS, 1, 4).withColumnRenamed("id", "number")
    frame = numbers.select(F.format_string("order-%010d", "number").alias("id"), payload.alias("payload"))
    frame.write.parquet(str(path))
    return spark.read.parquet(str(path))


def _session(directory: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("redis-acker benchmark")
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
