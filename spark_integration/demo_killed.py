"""The second job of `redis-acker demo`: its driver is killed half way, and the next run continues where it stopped.

May import: redis_acker, runs, frames, demo.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from redis_acker import Acker
from spark_integration.frames.track import track
from spark_integration.runs.summary import Summary

SPOUT = "deliveries"
SINK_S = 10.0
"""How long the sink takes for all messages."""


@dataclass(frozen=True)
class SecondRun:
    """The outcome of the run after one that was killed."""

    messages: int
    completed_before: int
    """By the run that was killed."""
    completed: int
    delivered: int
    """Messages that the sink was given, by its own log."""
    delivered_twice: int
    seconds: float
    """Of the second run, which first waits until nobody holds the spout."""

    @property
    def balanced(self) -> bool:
        return self.messages == self.completed == self.delivered and self.completed_before > 0


def run(spark: SparkSession, acker: Acker, messages: int, say: Callable[[str], None]) -> SecondRun:
    """Starts a job in a process of its own, kills it half way, and runs it again."""
    with tempfile.TemporaryDirectory() as directory:
        path, log = Path(directory) / "messages", Path(directory) / "log"
        log.mkdir()
        spark.range(0, messages, 1, 4).write.parquet(str(path))
        completed = _kill_half_way(acker, messages, str(spark.sparkContext.master), path, log)
        say(f"Its driver was killed after {completed:,} of {messages:,} messages. Running it again ...")
        start_s = time.monotonic()
        summary = job(spark.read.parquet(str(path)), acker, messages, log)
        given = np.concatenate([np.fromfile(file, dtype=np.int64) for file in log.iterdir()])
        delivered = len(np.unique(given))
        return SecondRun(
            messages,
            summary.completed_before,
            summary.completed,
            delivered,
            len(given) - delivered,
            time.monotonic() - start_s,
        )


def job(frame: DataFrame, acker: Acker, messages: int, log: Path) -> Summary:
    """Hands every message to a slow sink, which notes what it was given."""
    directory, row_s = str(log), SINK_S / messages

    def deliver(batch: Any) -> None:
        time.sleep(row_s * batch.num_rows)
        with open(f"{directory}/{os.getpid()}", "ab") as file:
            file.write(batch["id"].to_numpy().tobytes())

    return track(frame, acker=acker, spout=SPOUT, message_id="id", progress=False).sink(deliver)


def _kill_half_way(acker: Acker, messages: int, master: str, path: Path, log: Path) -> int:
    arguments = [",".join(acker.urls), acker.namespace, master, str(messages), str(path), str(log)]
    driver = subprocess.Popen(
        [sys.executable, "-m", "spark_integration.demo_killed", *arguments],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while (completed := _completed(acker)) < messages // 2 and driver.poll() is None:
            time.sleep(0.02)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    return completed


def _completed(acker: Acker) -> int:
    return sum(one.completed for one in acker.stats().spouts if one.name == SPOUT)


def _main(urls: str, namespace: str, master: str, messages: str, path: str, log: str) -> None:
    from spark_integration.demo import spark_session

    with Acker(urls.split(","), namespace=namespace) as acker, spark_session(master) as spark:
        job(spark.read.parquet(path), acker, int(messages), Path(log))


if __name__ == "__main__":
    _main(*sys.argv[1:])
