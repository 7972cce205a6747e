"""Spark fails on its side of a task, and the Python worker sees a normal end of a part of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from redis_acker import BasicBolt, Tuple
from spark_integration.topologies import spark_jobs
from spark_integration.topologies.task import ArrowFunction, Level, level_step
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Notebook, Relay, chain

MESSAGES = 60
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


class NotesNumbers(BasicBolt):
    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        self.notebook.write("number", int(tup["value"].split()[0]))


@pytest.fixture
def timeout_ms() -> int:
    return 3_000


@pytest.mark.full
def test_nothing_is_acked_because_an_input_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A race: at times the worker is ended before it sees the end. So it is tried a few times."""
    by_part, notebook = spark_jobs.by_part, bench.notebook
    jobs: list[DataFrame] = []

    def cut_short(frame: DataFrame, partitions: int) -> DataFrame:
        """In the first job the last row of each partition cannot be read."""
        found = by_part(frame, partitions)
        jobs.append(found)
        if len(jobs) > 1:
            return found
        is_last = F.monotonically_increasing_id() % (1 << 33) >= 2
        fails = F.raise_error(F.lit("Spark fails on its side")).cast("binary")
        return found.withColumn("data", F.when(is_last, fails).otherwise(F.col("data")))

    def counting_step(level: Level) -> ArrowFunction:
        step = level_step(level)

        def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = 0
            for batch in batches:
                rows += batch.num_rows
                yield batch
            notebook.write("end", level.number, level.is_careful, rows)

        return lambda batches: step(counted(batches))

    monkeypatch.setattr(spark_jobs, "by_part", cut_short)
    monkeypatch.setattr(spark_jobs, "level_step", counting_step)
    bench.spark.conf.set(BATCH_ROWS, "1")
    try:
        tries = 0
        while not any(note[:3] == ("end", 1, False) for note in notebook.read()):
            tries += 1
            assert tries < 20, "the worker has never seen the end of a truncated input"
            jobs.clear()
            messages = [f"{number} {'x' * 5_000}" for number in range(MESSAGES)]
            bench.run(chain(messages, Relay(), NotesNumbers(notebook)))
            assert len(jobs) == 1  # the second job is careful, and has no partitions
    finally:
        bench.spark.conf.unset(BATCH_ROWS)

    assert bench.books() == (tries * MESSAGES, 0, 0, 0)
    assert {note[1] for note in notebook.read() if note[0] == "number"} == set(range(MESSAGES))
