"""A load on a tracked streaming query: a feeder fills a Redis Stream, and a query reads it until it is told that no
more comes. When it is told to, it stops and starts again, on the same checkpoint and in the same process."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import redis
from pyspark.sql import Row, SparkSession

from redis_acker import Acker, DeadLetters, RetryPolicy
from redis_acker.errors import AckerError
from redis_acker.store.ids import U64Array
from redis_acker.store.message_ids import MessageId
from spark_integration import RedisStreamSource, track_stream
from spark_integration.streams.stream import StreamJob
from tests.chaos.harness.journal import Journal, as_runs, from_runs, longest_gap_s, read
from tests.chaos.harness.planted import begin
from tests.chaos.harness.roots import SPOUT, open_acker
from tests.chaos.harness.verdict import Verdict
from tests.spark.processes import MARK

STREAM = "numbers"
SCHEMA = "id string, number string, payload string, poison string"
FIRST = 2
PAYLOAD = "x" * 100
FED_AT_ONCE = 50
MOST_IN_STREAM = 40_000
"""Entries; a feeder that is ahead waits."""

FAILING = 0.01
"""Share of the attempts that fail by chance."""
POISON_EVERY_S = 5
"""As often there is a message that can never be done."""
RETRIES = RetryPolicy(max_attempts=5, first_ms=100, longest_ms=1000)
BATCH_ROWS = 20_000
HEAP_EVERY_S = 10

RESTART, FED = "restart", "fed"
"""Files by which the query is told to stop and start again, and the number of the last message, when all are fed."""

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What Spark keeps of jobs that are over, though nobody looks at it: the heap grows until there are that many.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "20",
}


def feed(url: str, folder: Path, bug: str, per_s: float) -> None:
    """Adds messages for ever, so many a second. Their numbers are the ids of their entries, so none is added twice."""
    begin(folder, bug)
    client, due_s, poison_every = redis.Redis.from_url(url, socket_timeout=5), time.monotonic(), poison_every_of(per_s)
    while True:
        try:
            first = fed_so_far(client) + 1
            if client.xlen(STREAM) < MOST_IN_STREAM:
                with client.pipeline(transaction=False) as pipeline:
                    for number in range(first, first + FED_AT_ONCE):
                        poison = "" if number % poison_every else "yes"
                        row: dict[Any, Any] = {"number": number, "payload": PAYLOAD, "poison": poison}
                        pipeline.xadd(STREAM, row, id=f"{number}-1")
                    pipeline.execute()
        except redis.RedisError:
            time.sleep(0.1)
        due_s = max(due_s, time.monotonic() - 1) + FED_AT_ONCE / per_s
        time.sleep(max(0.0, due_s - time.monotonic()))


def poison_every_of(per_s: float) -> int:
    return round(POISON_EVERY_S * min(per_s, 100_000))


def fed_so_far(client: redis.Redis) -> int:
    """The number of the last message."""
    if not client.exists(STREAM):
        return FIRST - 1
    return int(client.xinfo_stream(STREAM)["last-generated-id"].split(b"-")[0])


class Numbers(RedisStreamSource):
    """Notes what it is told of."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, STREAM, max_per_trigger=BATCH_ROWS, rows_per_partition=BATCH_ROWS // 4)
        self._journal = Journal(folder / "over")

    def finish(self, message_ids: Iterable[MessageId]) -> None:
        ids = list(message_ids)
        self._journal.note("over", as_runs(np.unique(np.array([_number_of(one) for one in ids], dtype=np.uint64))))
        super().finish(ids)

    def is_over(self) -> bool:
        return not any(one.waiting or one.pending for one in self.status())


def _number_of(message_id: MessageId) -> int:
    return int(str(message_id).rpartition("/")[2].partition("-")[0])


def run(url: str, namespace: str, folder: Path, bug: str) -> None:
    """Runs until every message is over. A query that ends with an error is started again."""
    begin(folder, bug)
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=os.getcwd())
    os.environ[MARK] = namespace
    with (folder / "spark").open("ab") as said:
        os.dup2(said.fileno(), 2)
        os.dup2(said.fileno(), 1)
    builder = SparkSession.builder.master("local[2]").appName("soak")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark, journal = builder.getOrCreate(), Journal(folder / "queries")
    heap = _Heap(spark, journal)
    with open_acker(url, namespace) as acker:
        while True:
            source = Numbers(url, folder)
            try:
                if _run_query(_job(spark, acker, source, folder), source, folder, heap):
                    return
            except AckerError as error:
                journal.note("ended", f"{type(error).__name__}: {error}")
                time.sleep(0.5)


def _job(spark: SparkSession, acker: Acker, source: Numbers, folder: Path) -> StreamJob:
    told = folder / "told"

    def check(row: Row) -> tuple[int, str]:
        if row.poison:
            raise ValueError("poison")
        if random.random() < FAILING:
            raise ConnectionError("by chance")
        return int(row.number), row.payload

    def deliver(batch: Any) -> None:
        _journal(told).note("sunk", as_runs(batch["number"].to_numpy().astype(np.uint64)))

    frame = source.frame(spark, SCHEMA)
    stream = track_stream(frame, acker=acker, spout=SPOUT, message_id="id", retries=RETRIES, source=source)
    return stream.map(check, "number long, payload string").sink(deliver)


@cache
def _journal(file: Path) -> Journal:
    """One for all that a worker sinks."""
    return Journal(file)


def _run_query(job: StreamJob, source: Numbers, folder: Path, heap: _Heap) -> bool:
    """Whether all is over. If not, the query is to be started again."""
    restart = folder / RESTART
    with job.start(checkpoint=str(folder / "checkpoint")) as query:
        restart.unlink(missing_ok=True)
        while query.is_active and not restart.exists():
            heap.look()
            if (folder / FED).exists() and source.is_over():
                return True
            time.sleep(0.1)
    query.wait()
    return False


class _Heap:
    """Notes now and then what is left on Java's heap after a collection."""

    def __init__(self, spark: SparkSession, journal: Journal) -> None:
        assert spark.sparkContext._jvm
        self._system, self._runtime = (getattr(spark.sparkContext._jvm.java.lang, one) for one in ("System", "Runtime"))
        self._journal, self._due_s = journal, time.monotonic()

    def look(self) -> None:
        if time.monotonic() < self._due_s:
            return
        self._system.gc()
        now = self._runtime.getRuntime()
        self._journal.note("heap", now.totalMemory() - now.freeMemory())
        self._due_s = time.monotonic() + HEAP_EVERY_S


def judge(folder: Path, acker: Acker, per_s: float) -> Verdict:
    """What the sink and the source have noted, beside what the store says in the end."""
    sunk, over = _noted(folder / "told"), _noted(folder / "over")
    dead = np.array([_number_of(one.message_id) for one in DeadLetters(acker, spout=SPOUT)], dtype=np.uint64)
    fed = np.arange(FIRST, int((folder / FED).read_text()) + 1, dtype=np.uint64)
    poison = fed[fed % poison_every_of(per_s) == 0]
    good = np.setdiff1d(fed, poison)
    [spout] = acker.stats().spouts
    times_s = [at_s for _, at_s, _ in read(folder / "told")]
    verdict = Verdict(carried=len(fed), replays=len(sunk) - len(np.unique(sunk)), stall_s=longest_gap_s(times_s))
    verdict.wrong |= {
        "lost": len(np.setdiff1d(fed, over)),
        "false": len(np.setdiff1d(good, sunk)) + len(np.setdiff1d(poison, dead)) + len(np.intersect1d(poison, sunk)),
        "stuck": acker.pending_count(),
        "twice": abs(spout.completed + len(dead) - len(fed)),
        "innocents": len(np.setdiff1d(dead, poison)),
    }
    return verdict


def _noted(file: Path) -> U64Array:
    return np.concatenate([np.zeros(0, dtype=np.uint64), *(from_runs(runs) for _, _, [runs] in read(file))])
