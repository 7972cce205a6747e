"""A tracked stream against the same streaming query untracked, in turns, in one session."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.common import Report, Target
from benchmarks.spark_session import PAYLOAD_BYTES, count_fused, payload, session, sink, store_rows, two_steps
from redis_acker import Acker
from redis_acker.server.embedded import EmbeddedServer
from spark_integration import StreamCounters, track_stream

BATCHES = 10
FILES_OF_A_BATCH = 4
BATCH_ROWS = 200_000
ROUNDS = 5
WARM_UPS = 1
"""Rounds before those that count: Java compiles what it runs often."""

MOST_STREAM = 1.15
SCHEMA = "id string, payload string"
NOW = {"availableNow": True}


def measure(say: Callable[[str], None]) -> Report:
    """A file for each micro-batch, and all of them are there from the start: the query is never idle."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedServer() as server, Acker(server.url) as acker:
        spark = session(directory)
        facts: dict[str, str | int] = {"spark": spark.version, "server": server.version, "rounds": ROUNDS}
        report = Report("stream", {**facts, "batches": BATCHES, "rows_of_a_batch": BATCH_ROWS})
        say(f"{BATCHES} micro-batches of {BATCH_ROWS:,} rows of {PAYLOAD_BYTES} bytes, two Python steps and a sink ...")
        bench = _Bench(spark, acker, Path(directory))
        for _ in range(WARM_UPS + ROUNDS):
            bench.untracked()
            bench.untracked(gc=True)
            bench.tracked()
        bench.add_to(report)
        spark.stop()
    return report


class _Bench:
    def __init__(self, spark: SparkSession, acker: Acker, directory: Path) -> None:
        self._spark, self._acker, self._directory = spark, acker, directory
        self._untracked_s: list[float] = []
        self._untracked_gc_s: list[float] = []
        self._tracked_s: list[float] = []
        self._batch_ms: list[float] = []
        self._counters: list[StreamCounters] = []
        store_rows(spark, directory / "in", payload(), BATCHES * BATCH_ROWS, files=BATCHES * FILES_OF_A_BATCH)

    def _frame(self) -> DataFrame:
        reader = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_OF_A_BATCH)
        return reader.parquet(str(self._directory / "in"))

    def _checkpoint(self) -> str:
        path = self._directory / "checkpoint"
        shutil.rmtree(path, ignore_errors=True)
        return str(path)

    def untracked(self, *, gc: bool = False) -> None:
        counted: list[int] = []

        def process(batch: DataFrame, _: int) -> None:
            counted.append(count_fused(batch, gc=gc))

        writer = self._frame().writeStream.foreachBatch(process).option("checkpointLocation", self._checkpoint())
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        (self._untracked_gc_s if gc else self._untracked_s).append(_seconds(query))
        if not gc:
            self._batch_ms += [one.durationMs["addBatch"] for one in query.recentProgress if one.numInputRows]
        assert counted == [BATCH_ROWS] * BATCHES

    def tracked(self) -> None:
        stream = track_stream(self._frame(), acker=self._acker, spout="orders", message_id="id")
        job = two_steps(stream).sink(sink)
        query = job.start(checkpoint=self._checkpoint(), trigger=NOW, takes_over=True)
        query.wait()
        self._tracked_s.append(_seconds(query.query))
        self._counters.append(query.counters)
        assert query.counters.completed == BATCHES * BATCH_ROWS, query.counters

    def add_to(self, report: Report) -> None:
        batch_ms = median(self._batch_ms[WARM_UPS * BATCHES :])
        p50_ms, p99_ms = (
            median(value for one in self._counters[WARM_UPS:] if (value := getattr(one, name)) is not None)
            for name in ("p50_ms", "p99_ms")
        )
        report.add("untracked_stream_s", "untracked, s", median(self._untracked_s[WARM_UPS:]))
        report.add("tracked_stream_s", "tracked, s", median(self._tracked_s[WARM_UPS:]))
        ratio, ratio_gc = map(self._over, (self._untracked_s, self._untracked_gc_s))
        report.add("tracked_stream", "tracked / untracked", ratio, Target("<=", MOST_STREAM))
        report.add("tracked_stream_gc", "tracked / untracked with the same collector", ratio_gc)
        report.add("untracked_batch_ms", "untracked: a micro-batch, ms", batch_ms)
        report.add("arrival_to_completion_p50_ms", "tracked: arrival to completion, p50, ms", p50_ms)
        report.add("arrival_to_completion_p99_ms", "tracked: arrival to completion, p99, ms", p99_ms)
        report.add("p99_over_batch", "p99 / untracked micro-batch", p99_ms / batch_ms)

    def _over(self, untracked_s: list[float]) -> float:
        return median(a / b for a, b in list(zip(self._tracked_s, untracked_s, strict=True))[WARM_UPS:])


def _seconds(query: StreamingQuery) -> float:
    """The time of all micro-batches, as Spark measures it: without the start and the end of the query."""
    done = [one.durationMs["triggerExecution"] for one in query.recentProgress if one.numInputRows]
    assert len(done) == BATCHES, done
    return sum(done) / 1000
