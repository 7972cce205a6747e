"""Runs over files whose driver is killed: a process of its own, that ends by SIGKILL in the middle of its job."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import redis
from pyspark.sql import DataFrame, Row, SparkSession

from redis_acker import Acker, RetryPolicy
from spark_integration import TrackedFrame, track
from spark_integration.runs.books import TaskBooks
from tests.spark.cluster import SMALL
from tests.spark.processes import own_driver
from tests.waiting import wait_until

SCHEMA = "id string, number long"
FILES, ROWS_OF_A_FILE = 4, 100
ROWS = FILES * ROWS_OF_A_FILE
BATCH_ROWS = 20
SPOUT = "numbers"
CORES = 2

#: Rows that are sunk before the driver is killed: each core has done two batches of a file, and is at the third.
DONE = CORES * 2 * BATCH_ROWS


def write_files(directory: Path) -> None:
    """Files that are a partition each, because Spark does not put several into one that are as small as these."""
    directory.mkdir(exist_ok=True)
    for file in range(FILES):
        rows = ({"id": f"m{n:05}", "number": n} for n in range(file * ROWS_OF_A_FILE, (file + 1) * ROWS_OF_A_FILE))
        (directory / f"part-{file}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def read_files(spark: SparkSession, directory: Path) -> DataFrame:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    return spark.read.schema(SCHEMA).json(str(directory))


Hold = Literal["in sink", "before ack", "after ack"]


class Job:
    """A step that fails some rows while it is told to, and a sink that notes what it has taken. Both go to workers."""

    def __init__(self, directory: str, *, fails: bool = False, holds: Hold | None = None) -> None:
        """holds: where a worker waits to be killed with its third batch."""
        self.directory, self._fails, self._holds = Path(directory), fails, holds

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Comes to a worker."""
        vars(self).update(state)
        if self._holds == "before ack" or self._holds == "after ack":
            self._hold_at_ack(after=self._holds == "after ack")

    def _hold_at_ack(self, *, after: bool) -> None:
        real = TaskBooks._ack

        def ack(task: TaskBooks, *args: Any, **options: Any) -> bool:
            is_due = task._place.rows >= 2 * BATCH_ROWS
            if is_due and not after:
                self._hold()
            answer = real(task, *args, **options)
            if is_due:
                self._hold()
            return answer

        setattr(TaskBooks, "_ack", ack)  # noqa: B010

    def _hold(self) -> None:
        (self.directory / f"held {os.getpid()}").touch()
        while True:
            signal.pause()

    def step(self, row: Row) -> Row:
        if self._fails and row.number % ROWS_OF_A_FILE == 7:
            raise ValueError("a seventh")
        return row

    def sink(self, row: Row) -> None:
        if self._holds == "in sink" and row.number % ROWS_OF_A_FILE >= 2 * BATCH_ROWS:
            self._hold()
        with (self.directory / "sunk").open("a") as file:
            file.write(f"{row.number}\n")

    def sunk(self) -> list[int]:
        path = self.directory / "sunk"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def run(self, tracked: TrackedFrame) -> Any:
        return tracked.map(self.step, SCHEMA, name="step").sink(self.sink, per="row")


def tracked_files(spark: SparkSession, acker: Acker, directory: Path, **options: Any) -> TrackedFrame:
    retries = RetryPolicy(max_attempts=2, first_ms=0)
    return track(
        read_files(spark, directory), acker=acker, spout=SPOUT, message_id="id", **{"retries": retries, **options}
    )


def kill_in_the_middle(
    acker: Acker,
    directory: Path,
    conf: Mapping[str, str] | None = None,
    *,
    holds: Hold = "in sink",
    resume: bool | str = True,
) -> None:
    """A run whose driver is killed when each core is in its third batch. Its lease is ended, as by time."""
    where = {"url": acker.urls, "namespace": acker.namespace, "directory": str(directory)}
    arguments = {**where, "conf": dict(conf or {}), "holds": holds, "resume": resume}
    with own_driver("tests.spark.frames.killed", arguments):
        wait_until(lambda: len(list(directory.glob("held *"))) == CORES, 120)
    acker.shards.ask(0, "DEL", acker.shards.keys[0].lease(acker.spout_number(SPOUT)))


def keys_of_runs(acker: Acker) -> list[bytes]:
    """What a run stores for itself: none of it outlives the run."""
    [url] = acker.urls
    with redis.Redis.from_url(url) as client:
        found = list(client.scan_iter(f"*{acker.namespace}:*"))
    kinds = (b"progress:", b"rows:", b"run:", b"lease:", b"heads:", b"vals:", b"ids:")
    return [key for key in found if any(kind in key for kind in kinds)]


def main(url: list[str], namespace: str, directory: str, conf: dict[str, str], holds: Hold, resume: bool | str) -> None:
    builder = SparkSession.builder.master(f"local[{CORES},2]")
    for name, value in {**SMALL, **conf}.items():
        builder = builder.config(name, value)
    with Acker(url, namespace=namespace) as acker:
        job = Job(directory, fails=True, holds=holds)
        job.run(tracked_files(builder.getOrCreate(), acker, Path(directory) / "in", resume=resume))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
