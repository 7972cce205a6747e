"""Tracked queries in processes of their own, that are killed where a test wants and started again on other cores."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, RetryPolicy
from spark_integration import track_stream
from spark_integration.runs.books import TaskBooks
from spark_integration.runs.leaving_books import LeavingBooks
from spark_integration.streams.query import MessageQuery
from spark_integration.streams.query_record import QueryRecord
from spark_integration.streams.spout import StreamSpout
from spark_integration.streams.written import WrittenParts
from tests.spark.cluster import HOSTS, SMALL
from tests.spark.processes import ROOT
from tests.spark.streams.feed import NOW, SCHEMA, SPOUT, Feed
from tests.waiting import wait_until

InBatch = Literal["in sink", "before note", "before ack", "in acks", "before record", "after record", "before commit"]
Hold = InBatch | Literal["", "waiting", "in retry", "after a part", "to be stopped"]
"""Where a query waits to be killed. before note: when the sink of its first portion has returned, and the rows that
failed in it have, but nothing says so yet. before ack: a step further. in acks: when the driver has acked the first
portion of several. after a part: when a row that kills its worker was given up, and other parts of its micro-batch are
done. to be stopped: in the sink, until it is stopped instead."""

Kind = Literal["sink", "columns", "shuffle", "write", "leave"]
"""sink: tasks keep the books. columns: so they do behind native columns. shuffle, write: the driver keeps them. leave:
rows leave for another application, with their anchors in the file `left`."""

BATCH_ROWS = 20
FAILS = 7
"""Numbers that leave this after division by 100 fail, until the file `mended` is there."""
KILLS = 250
"""The number that takes its worker down, if a query holds after parts of a micro-batch."""


class Work:
    """A step and a sink, which go to workers."""

    def __init__(self, directory: str, holds: Hold) -> None:
        self.directory, self._holds = Path(directory), holds

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._holds == "before ack":
            for books in (TaskBooks, LeavingBooks):
                self._hold_in(books, "_ack", from_rows=2 * BATCH_ROWS)
        if self._holds == "before note":
            for books in (TaskBooks, LeavingBooks):
                self._hold_in(books, "_reach_sunk", from_rows=0)

    def _hold_in(self, books: type[TaskBooks], name: str, *, from_rows: int) -> None:
        real = vars(books)[name]

        def held(task: TaskBooks, *args: Any, **options: Any) -> bool:
            if not task._books.part and task._place.rows >= from_rows:  # not in a retry
                self.hold()
            return bool(real(task, *args, **options))

        setattr(books, name, held)

    def hold(self) -> None:
        (self.directory / f"held {os.getpid()}").touch()
        while True:
            signal.pause()

    @property
    def _is_mended(self) -> bool:
        return (self.directory / "mended").exists()

    def step(self, row: Row) -> Row:
        if self._holds == "after a part" and row.number == KILLS:
            os._exit(1)
        if row.number % 100 == FAILS:
            if self._holds == "in retry" and (self.directory / f"failed {row.number}").exists():
                self.hold()
            if not self._is_mended:
                (self.directory / f"failed {row.number}").touch()
                raise ValueError("a seventh")
        return row

    def leave(self, batch: pa.RecordBatch) -> None:
        file = os.open(self.directory / "left", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, "".join(f"{one.hex()}\n" for one in batch.column("anchors").to_pylist()).encode())
        finally:
            os.close(file)

    def sink(self, row: Row) -> None:
        if self._holds in ("in sink", "to be stopped") and row.number % 100 >= 2 * BATCH_ROWS:
            self.hold()
        Feed(self.directory).sink(row)


def hold_before_commit(work: Work) -> None:
    """When all of ours is done, and Spark does not know it yet."""
    real = MessageQuery._run_batch

    def run(query: MessageQuery, *args: Any) -> None:
        real(query, *args)
        work.hold()

    setattr(MessageQuery, "_run_batch", run)  # noqa: B010


def hold_at_record(work: Work, *, after: bool) -> None:
    real = QueryRecord.finish

    def finish(checkpoint: QueryRecord, batch: int) -> None:
        if after:
            real(checkpoint, batch)
        work.hold()

    setattr(QueryRecord, "finish", finish)  # noqa: B010


def hold_in_acks(work: Work) -> None:
    """In a job whose driver completes the messages."""
    real, calls = Acker.ack, itertools.count()

    def ack(acker: Acker, *args: Any, **options: Any) -> Any:
        if next(calls):
            work.hold()
        return real(acker, *args, **options)

    setattr(Acker, "ack", ack)  # noqa: B010


def hold_after_parts(work: Work) -> None:
    """When the row that kills its worker is given up, and another part is done after it."""
    real, give_up, given_up = WrittenParts.done, StreamSpout.note_attempt, list[Any]()

    def note_attempt(spout: StreamSpout, *args: Any) -> None:
        give_up(spout, *args)
        given_up.extend(args[:1])

    def done(written: WrittenParts, part: str, rows: int) -> None:
        real(written, part, rows)
        if given_up and rows:
            work.hold()

    setattr(StreamSpout, "note_attempt", note_attempt)  # noqa: B010
    setattr(WrittenParts, "done", done)  # noqa: B010


def count_looks(work: Work) -> None:
    """A file for each look that the thread of the query has taken, with all that it tried again."""
    real = MessageQuery._look

    def look(query: MessageQuery) -> None:
        real(query)
        (work.directory / f"looked {len(list(work.directory.glob('looked *')))}").touch()

    setattr(MessageQuery, "_look", look)  # noqa: B010


def start(acker: Acker, feed: Feed, *, cores: int, holds: Hold = "", kind: Kind = "sink") -> subprocess.Popen[str]:
    where = {"url": acker.urls, "namespace": acker.namespace, "directory": str(feed.directory)}
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.spark.streams.killed",
            json.dumps({**where, "cores": cores, "holds": holds, "kind": kind}),
        ],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOSTS[0]},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=(feed.directory / "log").open("a"),
        text=True,
    )


def kill_when_held(
    acker: Acker,
    feed: Feed,
    *,
    cores: int,
    holds: Hold,
    kind: Kind = "sink",
    processes: int = 1,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Starts a query, and kills it when so many of its processes wait to be killed. meanwhile: what is done then."""
    query = start(acker, feed, cores=cores, holds=holds, kind=kind)
    try:
        wait_until(lambda: len(list(feed.directory.glob("held *"))) >= processes or query.poll() is not None, 180)
        assert query.poll() is None, (feed.directory / "log").read_text()[-3000:]
        meanwhile()
    finally:
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()
    for held in feed.directory.glob("held *"):
        held.unlink()


def run_to_end(acker: Acker, feed: Feed, *, cores: int, kind: Kind = "sink", holds: Hold = "") -> dict[str, Any]:
    """A query over what is there, to its end. Returns its counters."""
    query = start(acker, feed, cores=cores, kind=kind, holds=holds)
    try:
        said, _ = query.communicate(timeout=240)
    finally:
        if query.poll() is None:
            os.killpg(query.pid, signal.SIGKILL)
    assert query.returncode == 0, (feed.directory / "log").read_text()[-3000:]
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def main(url: list[str], namespace: str, directory: str, cores: int, holds: Hold, kind: Kind) -> None:
    builder = SparkSession.builder.master(f"local[{cores},2]")
    conf = {**SMALL, "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS)}
    for name, value in {**conf, "spark.default.parallelism": str(cores)}.items():
        builder = builder.config(name, value)
    feed, work = Feed(directory), Work(directory, holds)
    if holds in ("before record", "after record"):
        hold_at_record(work, after=holds == "after record")
    if holds == "before commit":
        hold_before_commit(work)
    if holds == "in acks":
        hold_in_acks(work)
    if holds == "after a part":
        hold_after_parts(work)
    if holds == "before note":
        count_looks(work)
    with Acker(url, namespace=namespace) as acker:
        frame = builder.getOrCreate().readStream.schema(SCHEMA).json(str(feed.input))
        retries = RetryPolicy(max_attempts=1000, first_ms=0)
        stream = track_stream(frame, acker=acker, spout=SPOUT, message_id="id", retries=retries)
        if kind == "columns":
            stream = stream.with_column("number", F.col("number") + 0)
        if kind == "shuffle":
            stream = stream.repartition(3)
        stepped = stream.map(work.step, SCHEMA, name="step")
        if kind == "write":
            job = stepped.write(lambda writer: writer.mode("append").json(f"{directory}/out"))
        elif kind == "leave":
            job = stepped.sink(work.leave, anchors="anchors")
        else:
            job = stepped.sink(work.sink, per="row")
        is_over = holds in ("waiting", "in retry")
        query = job.start(checkpoint=feed.checkpoint, trigger={} if is_over else NOW)
        if holds == "waiting":
            wait_until(lambda: query.counters.batches == 1 and query.counters.failed > 1, 120)
            work.hold()
        if holds == "to be stopped":
            wait_until(lambda: any(feed.directory.glob("held *")), 120)
            query.stop()
        query.wait()
        print(json.dumps(asdict(query.counters)))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
