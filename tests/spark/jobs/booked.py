"""A job without a shuffle under the scenarios: its tasks keep the books themselves.

Everything that matters is logged by itself, beside the product: the sink logs each call before it returns, workers log
which messages they make pending under which roots, and the driver the final events that it reads. Some messages fail in
a step. The points of tests.spark.jobs.faults are passed in the sink, in the middle of a task; a task that is told to
fail there dies with its Python worker.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row, SparkSession

from redis_acker import Acker, RetryPolicy
from redis_acker.store.event_reader import EventReader
from spark_integration import track
from tests.spark.jobs.faults import Fault, Faults, InjectedFault

SCHEMA = "id long"
BATCH_ROWS = 2_000

SINK_BEGUN = "sink begun"
"""A task's second portion has come to the sink."""
SINK_DONE = "sink done"
"""The sink has taken it, and nothing of it is acked."""
ACKED = "acked"
"""It is acked, and the third portion has come to the sink."""

SUNK, INITS, EVENTS = "sunk", "inits", "events"
"""The logs: [time, numbers], [roots, numbers], [kind, entry, time, component, roots]."""


class Settings(TypedDict):
    """What the job is told."""

    url: str
    namespace: str
    spout: str
    rows: int
    partitions: int
    directory: str
    plan: dict[str, Fault]
    resume: bool


def fails(number: int) -> bool:
    return number % 1_000 == 7


def write_log(directory: str, name: str, entry: list[Any]) -> None:
    """Adds a line. One write is there as a whole, or not at all."""
    file = os.open(Path(directory) / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{json.dumps(entry)}\n".encode())
    finally:
        os.close(file)


def read_log(directory: str | Path, name: str) -> list[list[Any]]:
    path = Path(directory) / f"{name}.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Logged:
    """Logs inits and final events in every process that it comes to: it is pickled into the steps."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._patch(Acker, "init", self._log_init)
        self._patch(EventReader, "read", self._log_events)

    def __reduce__(self) -> tuple[Any, ...]:
        return Logged, (self.directory,)

    @staticmethod
    def _patch(kind: Any, name: str, make: Any) -> None:
        real = getattr(kind, name)
        setattr(kind, name, make(getattr(real, "real", real)))

    @staticmethod
    def undo() -> None:
        """The driver has other jobs after this one, which know nothing of logs."""
        for kind, name in ((Acker, "init"), (EventReader, "read")):
            setattr(kind, name, getattr(getattr(kind, name), "real", getattr(kind, name)))

    def _log_init(self, real: Any) -> Any:
        def init(acker: Any, roots: Any, ack_vals: Any, **options: Any) -> Any:
            if hasattr(options.get("message_ids"), "tolist"):  # else it is another job, in a worker that had this one
                write_log(self.directory, INITS, [roots.tolist(), options["message_ids"].tolist()])
            return real(acker, roots, ack_vals, **options)

        init.real = real  # type: ignore[attr-defined]
        return init

    def _log_events(self, real: Any) -> Any:
        def read(reader: Any, *args: Any, **options: Any) -> Any:
            events = real(reader, *args, **options)
            for one in events:
                told = [f"{one.shard} {one.entry}", one.at_ms, getattr(one, "component", ""), one.roots.tolist()]
                write_log(self.directory, EVENTS, [type(one).__name__, *told])
            return events

        read.real = real  # type: ignore[attr-defined]
        return read


def run(spark: SparkSession, settings: Settings) -> dict[str, Any]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    directory, faults = settings["directory"], Faults(settings["directory"], settings["plan"])
    logged = Logged(directory)

    def step(row: Row) -> Row:
        if fails(row.id):
            raise ValueError("told to fail")
        return row

    def sink(batch: pa.RecordBatch) -> None:
        call = _count_call()
        if call in (2, 3):
            _pass(faults, SINK_BEGUN if call == 2 else ACKED)
        write_log(logged.directory, SUNK, [time.time(), batch["id"].to_pylist()])
        if call == 2:
            _pass(faults, SINK_DONE)

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("spark_integration").addHandler(handler)
    try:
        with Acker(settings["url"], namespace=settings["namespace"]) as acker:
            frame = spark.range(0, settings["rows"], 1, settings["partitions"])
            tracked = track(
                frame,
                acker=acker,
                spout=settings["spout"],
                message_id="id",
                retries=RetryPolicy(max_attempts=1),
                resume=settings["resume"],
            )
            summary = tracked.map(step, SCHEMA).sink(sink)
    finally:
        logged.undo()
        logging.getLogger("spark_integration").removeHandler(handler)
    return {
        "tracked": summary.tracked,
        "completed": summary.completed,
        "completed_before": summary.completed_before,
        "dead": summary.dead,
        "said": said,
    }


def _count_call() -> int:
    """The number of this call of the sink in its task."""
    context = TaskContext.get()
    assert context is not None
    attempt = context.taskAttemptId()
    _calls[attempt] = _calls.get(attempt, 0) + 1
    return _calls[attempt]


def _pass(faults: Faults, point: str) -> None:
    try:
        faults.reached(point)
    except InjectedFault:
        os._exit(1)


_calls: dict[int, int] = {}
"""Calls of the sink, by task, in this worker process."""
