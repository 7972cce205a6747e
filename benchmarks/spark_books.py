"""What tasks that keep the books do for a job: completions from the start, flat memory, and little to do again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.common import Report, Target
from benchmarks.spark_session import BATCH_ROWS, CORES, ROWS, two_steps
from redis_acker import Acker
from redis_acker.cli.measuring import seconds
from spark_integration import Summary, track

SUNK = "benchmark:sunk"
"""Key that counts what the sink was given."""

SLOW_S = 0.3
"""How long a sink takes for a batch, in a job that is looked at while it runs."""

MANY = 5 * ROWS
IN_WORK = CORES * BATCH_ROWS
_LOOK_EVERY_S = 0.005


def measure_books(
    report: Report, spark: SparkSession, rows: DataFrame, acker: Acker, directory: Path, say: Callable[[str], None]
) -> None:
    say("Completions and memory while a job runs ...")
    _while_it_runs(report, rows, acker)
    _server_memory(report, spark, acker)
    say("A driver killed half way, and one killed before its end ...")
    _after_a_kill(report, spark, rows, acker, directory)


# -- while a job runs ----------------------------------------------------------------------------------------------


def _while_it_runs(report: Report, rows: DataFrame, acker: Acker) -> None:
    spout = "seen"
    completed_key = f"completed:{acker.spout_number(spout)}"
    first_s: list[float] = []
    lags = [0]

    def look() -> None:
        completed = int(acker.shards.counters(0).get(completed_key) or 0)
        sunk = int(acker.shards.ask(0, "GET", SUNK) or 0)
        if completed and not first_s:
            first_s.append(time.monotonic())
        lags.append(sunk - completed)

    _check(_job(rows, acker, "warm-up", _nothing), ROWS)
    begin_s = time.monotonic()
    with looking(look):
        _check(_job(rows, acker, spout, _counting(acker.urls[0], SLOW_S)), ROWS)
    took_s = time.monotonic() - begin_s
    share = (first_s[0] - begin_s) / took_s
    report.add("first_completion", "first completion, share of the job's time", share, Target("<=", 0.05))
    report.add("lag", "most sunk and not completed, in batches x cores", max(lags) / IN_WORK, Target("<=", 2))


def _server_memory(report: Report, spark: SparkSession, acker: Acker) -> None:
    peaks: dict[int, int] = {}
    for count in (ROWS, MANY):
        seen = [used_memory(acker)]
        with looking(partial(_note_memory, acker, seen)):
            numbers = track(spark.range(0, count, 1, 8), acker=acker, spout="many", message_id="id", progress=False)
            _check(numbers.sink(_nothing), count)
        peaks[count] = max(seen) - seen[0]
    slope = (peaks[MANY] - peaks[ROWS]) / (MANY - ROWS)
    report.add("server_bytes_per_message", "server: bytes for each further message", max(slope, 0.0), Target("<=", 1))


@contextmanager
def looking(look: Callable[[], None], *, every_s: float = _LOOK_EVERY_S) -> Iterator[None]:
    """Inside it a thread looks again and again."""
    ended = threading.Event()

    def loop() -> None:
        while not ended.wait(every_s):
            look()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _note_memory(acker: Acker, seen: list[int]) -> None:
    seen.append(used_memory(acker))


def used_memory(acker: Acker) -> int:
    text = acker.shards.ask(0, "INFO", "memory").decode()
    return int(next(line for line in text.splitlines() if line.startswith("used_memory:")).partition(":")[2])


# -- after a kill --------------------------------------------------------------------------------------------------


def _after_a_kill(report: Report, spark: SparkSession, rows: DataFrame, acker: Acker, directory: Path) -> None:
    full_s = [seconds(lambda: _check(_job(rows, acker, "whole", _nothing), ROWS)) for _ in range(3)]

    log = directory / "sunk"
    log.mkdir()
    driver = _driver(acker, rows, "killed", log, "")
    _wait(lambda: _lines(log) > ROWS // 2, driver)
    _kill(driver, acker, "killed")
    summary = _job(rows, acker, "killed", _logging(str(log)))
    _check(summary, ROWS)
    assert summary.completed_before > 0, summary
    sunk = np.concatenate([np.fromfile(file, dtype=np.int64) for file in log.iterdir()])
    again = len(sunk) - len(np.unique(sunk))
    report.add(
        "redone_after_kill",
        "sunk twice after a kill, in batches x cores",
        again / (CORES * BATCH_ROWS),
        Target("<=", 1),
    )

    driver = _driver(acker, rows, "done", log, "before its end")
    driver.wait()
    _kill(driver, acker, "done")
    rerun_s = seconds(lambda: _check(_job(rows, acker, "done", _nothing), ROWS))
    report.add(
        "rerun_of_done", "run again when all was done, over a full run", rerun_s / min(full_s), Target("<=", 0.3)
    )


def _driver(acker: Acker, rows: DataFrame, spout: str, log: Path, dies: str) -> subprocess.Popen[bytes]:
    path = rows.inputFiles()[0].rpartition("/")[0]
    command = [sys.executable, "-m", "benchmarks.spark_books", acker.urls[0], path, spout, str(log), dies]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)


def _kill(driver: subprocess.Popen[bytes], acker: Acker, spout: str) -> None:
    """Kills a driver, and waits until nobody holds its spout any more."""
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    _wait(lambda: not acker.shards.ask(0, "EXISTS", acker.shards.keys[0].lease(acker.spout_number(spout))), None)


def _wait(condition: Callable[[], bool], driver: subprocess.Popen[bytes] | None) -> None:
    while not condition():
        if driver is not None and driver.poll() is not None:
            raise RuntimeError("The driver that was to be killed has ended.")
        time.sleep(0.01)


def _lines(log: Path) -> int:
    return sum(file.stat().st_size for file in log.iterdir()) // 8


def _main() -> None:
    """A driver that is to be killed: `python -m benchmarks.spark_books URL FILES SPOUT LOG DIES`."""
    import tempfile

    from benchmarks.spark_session import session
    from spark_integration.runs.booked import BookedRun

    url, path, spout, log, dies = sys.argv[1:]
    if dies:
        setattr(BookedRun, "summary", lambda self, rows: os.killpg(0, signal.SIGKILL))  # noqa: B010
    with tempfile.TemporaryDirectory() as directory, Acker(url) as acker:
        _job(session(directory).read.parquet(path), acker, spout, _nothing if dies else _logging(log))


# -- jobs and sinks ------------------------------------------------------------------------------------------------


def _job(frame: DataFrame, acker: Acker, spout: str, sink: Callable[[pa.RecordBatch], None]) -> Summary:
    """Two Python steps and a sink, as in the comparison with plain jobs."""
    tracked = track(frame, acker=acker, spout=spout, message_id="id", progress=False)
    return two_steps(tracked).sink(sink)


def _check(summary: Summary, rows: int) -> None:
    assert (summary.tracked, summary.completed) == (rows, rows), summary


def _nothing(batch: pa.RecordBatch) -> None: ...


def _counting(url: str, pause_s: float) -> Callable[[pa.RecordBatch], None]:
    clients: dict[int, Any] = {}

    def count(batch: pa.RecordBatch) -> None:
        import redis

        if os.getpid() not in clients:
            clients[os.getpid()] = redis.Redis.from_url(url)
        time.sleep(pause_s * batch.num_rows / BATCH_ROWS)
        clients[os.getpid()].incrby(SUNK, batch.num_rows)

    return count


def _logging(directory: str) -> Callable[[pa.RecordBatch], None]:
    """Notes the numbers of messages in a file for each worker."""

    def note(batch: pa.RecordBatch) -> None:
        numbers = np.array([int(one[6:]) for one in batch["id"].to_pylist()], dtype=np.int64)
        with open(f"{directory}/{os.getpid()}", "ab") as file:
            file.write(numbers.tobytes())

    return note


if __name__ == "__main__":
    _main()
