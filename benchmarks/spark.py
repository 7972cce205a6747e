"""Tracked Spark jobs against the same jobs untracked, in turns, in one session."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from benchmarks.common import Report, Target
from benchmarks.spark_books import measure_books
from benchmarks.spark_driver import measure_driver
from benchmarks.spark_session import (
    COUNT,
    PARSED,
    PAYLOAD_BYTES,
    ROWS,
    SCORED,
    count_fused,
    parse,
    payload,
    score,
    session,
    sink,
    store_rows,
    two_steps,
)
from redis_acker import Acker
from redis_acker.cli.measuring import seconds
from redis_acker.server.embedded import EmbeddedServer
from spark_integration import Summary, track

WORDS = 10
"""Words in a sentence."""
VOCABULARY = 50_000
SENTENCES = 4_000_000
"""So many that the job takes seconds: what tracking adds however few there are is told by itself."""
FEW = 1_000
"""Rows of a job of which nearly all time is spent however many there are."""
ROUNDS = 5
WARM_UPS = 2
"""Rounds before those that count: Java compiles what it runs often."""

MOST_PYTHON = 0.8
MOST_FUSED = 1.15
MOST_SQL = 1.4
MOST_SHUFFLE = 1.15

PlainJob = Callable[[DataFrame], object]
TrackedJob = Callable[[DataFrame, Acker], Summary]
Plain = Mapping[str, tuple[PlainJob, float | None]]


def measure(say: Callable[[str], None], sizes: Sequence[int]) -> Report:
    """All jobs, untracked and tracked in turns; then what tasks that keep the books do for a job that dies, and what a
    driver holds while jobs of some sizes run."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedServer() as server, Acker(server.url) as acker:
        spark = session(directory)
        facts: dict[str, str | int] = {"spark": spark.version, "server": server.version, "rows": ROWS, "rounds": ROUNDS}
        report = Report("spark", facts)
        say(f"{ROWS:,} rows of {PAYLOAD_BYTES} bytes through two Python steps and a sink ...")
        rows = store_rows(spark, Path(directory) / "rows", payload())
        fused_gc = partial(count_fused, gc=True)
        plain: Plain = {
            "python": (_python, MOST_PYTHON),
            "python_fused": (count_fused, MOST_FUSED),
            "python_fused_gc": (fused_gc, None),
        }
        _compare(report, plain, rows, _tracked_python, acker)
        few = store_rows(spark, Path(directory) / "few", _sentence(), FEW)
        _add_fixed(report, "python", fused_gc, few, _tracked_python, acker)
        say("A Python step, a shuffle and a Python sink ...")
        _compare(report, {"shuffle": (_shuffle, MOST_SHUFFLE)}, rows, _tracked_shuffle, acker)
        say(f"{SENTENCES:,} sentences into {SENTENCES * WORDS:,} words, natively ...")
        sentences = store_rows(spark, Path(directory) / "sentences", _sentence(), SENTENCES)
        _compare(report, {"sql": (_sql, MOST_SQL)}, sentences, _tracked_sql, acker, rows=SENTENCES)
        _add_fixed(report, "sql", _sql, few, _tracked_sql, acker)
        measure_books(report, spark, rows, acker, Path(directory), say)
        spark.stop()
        measure_driver(report, server.url, sizes, say)
    return report


def _compare(
    report: Report, plain: Plain, frame: DataFrame, tracked: TrackedJob, acker: Acker, *, rows: int = ROWS
) -> None:
    """plain: by name, what a tracked job is compared with, and how many times as long it may take."""
    plain_s, tracked_s = _in_turns(plain, frame, tracked, acker, rows)
    for name, (_, most) in plain.items():
        ratios = [with_it / without for with_it, without in zip(tracked_s, plain_s[name], strict=True)][WARM_UPS:]
        report.add(f"untracked_{name}_s", f"{name}: untracked, s", median(plain_s[name][WARM_UPS:]))
        report.add(f"tracked_{name}_s", f"{name}: tracked, s", median(tracked_s[WARM_UPS:]))
        target = None if most is None else Target("<=", most)
        report.add(f"tracked_{name}", f"{name}: tracked / untracked", median(ratios), target)


def _add_fixed(report: Report, name: str, job: PlainJob, few: DataFrame, tracked: TrackedJob, acker: Acker) -> None:
    """What tracking adds to a job, however few its rows are."""
    plain_s, tracked_s = _in_turns({name: (job, None)}, few, tracked, acker, FEW)
    fixed_s = median(a - b for a, b in zip(tracked_s[WARM_UPS:], plain_s[name][WARM_UPS:], strict=True))
    report.add(f"fixed_{name}_s", f"{name}: added to a job of {FEW:,} rows, s", fixed_s)


def _in_turns(
    plain: Plain, frame: DataFrame, tracked: TrackedJob, acker: Acker, rows: int
) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds of the untracked jobs, by name, and of the tracked one."""
    plain_s: dict[str, list[float]] = {name: [] for name in plain}
    tracked_s = []
    for _ in range(WARM_UPS + ROUNDS):
        for name, (job, _) in plain.items():
            plain_s[name].append(seconds(partial(job, frame)))
        tracked_s.append(seconds(lambda: _check(tracked(frame, acker), rows)))
    return plain_s, tracked_s


def _check(summary: Summary, rows: int) -> None:
    assert (summary.tracked, summary.completed) == (rows, rows), summary


# -- two Python steps ----------------------------------------------------------------------------------------------


def _python(frame: DataFrame) -> None:
    parsed = frame.mapInArrow(_plain(parse, ["id", "first", "words", "payload"]), PARSED)
    scored = parsed.mapInArrow(_plain(score, ["id", "score", "payload"]), SCORED)
    scored.mapInArrow(_plain_sink, COUNT).agg(F.sum("rows")).collect()


def _plain(function: Callable[[Row], tuple[Any, ...]], names: list[str]) -> Any:
    """A step over rows as one writes it without tracking."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            make_row = Row(*batch.schema.names)
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            columns = zip(*(function(make_row(*values)) for values in rows), strict=True)
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)

    return step


def _plain_sink(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        sink(batch)
        rows += batch.num_rows
    yield pa.RecordBatch.from_pylist([{"rows": rows}])


def _tracked_python(frame: DataFrame, acker: Acker) -> Summary:
    tracked = track(frame, acker=acker, spout="rows", message_id="id", progress=False)
    return two_steps(tracked).sink(sink)


# -- a shuffle between two of them ---------------------------------------------------------------------------------


def _shuffle(frame: DataFrame) -> None:
    parsed = frame.mapInArrow(_plain(parse, ["id", "first", "words", "payload"]), PARSED)
    parsed.repartition(4, "id").mapInArrow(_plain_sink, COUNT).agg(F.sum("rows")).collect()


def _tracked_shuffle(frame: DataFrame, acker: Acker) -> Summary:
    tracked = track(frame, acker=acker, spout="shuffled", message_id="id", progress=False)
    return tracked.map(parse, PARSED).repartition(4, "id").sink(sink)


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


def _write(writer: Any) -> None:
    writer.format("noop").mode("overwrite").save()
