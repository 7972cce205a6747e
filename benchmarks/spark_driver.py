"""What a driver, and the server, hold while its job tracks many messages: `python -m benchmarks.spark_driver`.

The executors are processes of their own, so that a driver's memory is its own.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.common import Report, Target
from benchmarks.spark_books import looking, used_memory
from benchmarks.spark_session import CORES, session
from redis_acker import Acker
from spark_integration import Summary, track

MESSAGES = (1_000_000, 10_000_000, 20_000_000)
MOST_BYTES = 2

SEPARATE = f"local-cluster[{CORES},1,1024]"
"""Executors of one core and 1 GiB."""

_PARTITIONS = 16
"""As many for any number of messages: what Spark keeps for a task is not ours."""

_WARM_UP = 5_000_000
"""Messages of a job before those that count: at first Python takes memory that it then keeps."""

_LOOK_EVERY_S = 1.0


def measure_driver(report: Report, url: str, sizes: Sequence[int], say: Callable[[str], None]) -> None:
    say(f"The memory of a driver, with {', '.join(f'{size:,}' for size in sizes)} messages ...")
    command = [sys.executable, "-m", "benchmarks.spark_driver", url, "sink", *map(str, sizes)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    held = [json.loads(line) for line in printed.splitlines()]
    slopes = {
        part: max(_slope([(one["messages"], one[f"{part}_bytes"]) for one in held]), 0.0) for part in ("python", "jvm")
    }
    report.add("driver_python_bytes_per_message", "driver: Python's bytes for each message", slopes["python"])
    report.add("driver_jvm_bytes_per_message", "driver: the JVM's bytes for each message", slopes["jvm"])
    report.add(
        "driver_bytes_per_message", "driver: bytes for each message", sum(slopes.values()), Target("<=", MOST_BYTES)
    )


def _slope(points: Sequence[tuple[int, int]]) -> float:
    """Of the line that is nearest to the points."""
    middle_x, middle_y = (sum(one[i] for one in points) / len(points) for i in (0, 1))
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


# -- in a process of its own ---------------------------------------------------------------------------------------


class Held:
    """The most that was held at once, of what was looked at about once a second."""

    def __init__(self, spark: SparkSession, acker: Acker) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._acker = acker
        self.python = self.jvm = self.server = 0

    def look(self) -> None:
        runtime = self._jvm.java.lang.Runtime.getRuntime()
        self._jvm.System.gc()
        self.jvm = max(self.jvm, runtime.totalMemory() - runtime.freeMemory())
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.python = max(self.python, pages * os.sysconf("SC_PAGE_SIZE"))
        self.server = max(self.server, used_memory(self._acker))


def run(spark: SparkSession, acker: Acker, kind: str, messages: int) -> Summary:
    """kind: 'sink' for a job whose tasks keep the books, 'shuffle' for one whose driver does."""
    numbers = spark.range(0, messages, 1, _PARTITIONS)
    tracked = track(numbers, acker=acker, spout=kind, message_id="id", progress=False)
    if kind == "shuffle":
        tracked = tracked.repartition(_PARTITIONS, "id")
    return tracked.sink(_nothing)


def _nothing(batch: pa.RecordBatch) -> None: ...


def _main() -> None:
    """`python -m benchmarks.spark_driver URL sink|shuffle MESSAGES ...`: one line of JSON for each number."""
    url, kind, *sizes = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory, Acker(url) as acker:
        spark = session(directory, SEPARATE)
        run(spark, acker, kind, _WARM_UP)
        for messages in map(int, sizes):
            gc.collect()
            before, held = used_memory(acker), Held(spark, acker)
            begin_s = time.monotonic()
            with looking(held.look, every_s=_LOOK_EVERY_S):
                summary = run(spark, acker, kind, messages)
            assert (summary.tracked, summary.completed) == (messages, messages), summary
            found = {"messages": messages, "seconds": round(time.monotonic() - begin_s, 1)}
            found |= {"python_bytes": held.python, "jvm_bytes": held.jvm, "server_bytes": held.server - before}
            print(json.dumps(found), flush=True)
        spark.stop()


if __name__ == "__main__":
    _main()
