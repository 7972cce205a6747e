"""A streaming query of Spark while it runs, with a thread beside its micro-batches."""

from __future__ import annotations

import logging
import threading
import time
import traceback
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from redis_acker import Acker, Rotator
from redis_acker.errors import AckerError, BadInput, MemoryFull, ServerUnavailable
from spark_integration.errors import JobFailed, error_of
from spark_integration.streams.counters import StreamCounters
from spark_integration.streams.progress import OnProgress, ProgressListener, with_counters

LOOK_EVERY_S = 0.5
"""How often the thread of a query looks for final events, requests, and pauses that are over."""

STORE_AWAY_S = 600.0
"""How long a micro-batch waits for a store that is away, before the query fails."""

_STOPPED = (
    "The query was stopped: py4j.protocol.Py4JJavaError: An error occurred while calling java.lang.InterruptedException"
)
"""What a micro-batch says that was stopped. Spark takes it for a stop by these words alone, and looks for them in a way
that overflows Java's stack if an error has many more, as the one has that ended the job."""

_AWAY = (ServerUnavailable, MemoryFull)

log = logging.getLogger(__name__)


Process = Callable[[DataFrame, int], None]


def _weakly(process: Callable[[DataFrame, int], str]) -> Process:
    """A method of a query, for Java to call. Java holds what it calls as long as the query of Spark, and ours holds
    that: if they held each other, neither garbage collector would ever take them."""
    method = weakref.WeakMethod(process)

    def call(batch: DataFrame, batch_id: int) -> None:
        found = method()
        said = found(batch, batch_id) if found else "The query has ended."
        del found  # PySpark holds the error, and that the frames that it has seen: this one only
        if said:
            raise JobFailed(said)

    return call


class TrackedQuery(ABC):
    """A handle for a query that runs."""

    query: StreamingQuery
    last_error: AckerError | None = None
    on_progress: OnProgress | None = None
    """Set before start()."""

    def __init__(self, acker: Acker, name: str) -> None:
        self._acker, self._name = acker, name
        self._thread = threading.Thread(target=self._look_after, name=f"stream {name}", daemon=True)
        self._is_started, self._stop, self._is_stopped = threading.Event(), threading.Event(), False
        self._batches = self._messages = 0

    # -- beginning and end ---------------------------------------------------------------------------------------

    @abstractmethod
    def start(self, checkpoint: str, trigger: dict[str, Any], *, takes_over: bool) -> TrackedQuery: ...

    def _start(self, frame: DataFrame, checkpoint: str, trigger: dict[str, Any]) -> None:
        """Starts Spark's query. Micro-batches wait until _started()."""
        if any(one.name == self._name for one in frame.sparkSession.streams.active):
            raise BadInput(f"A query {self._name!r} runs in this session already: stop it first, or use another name.")
        writer = frame.writeStream.foreachBatch(_weakly(self._process)).queryName(self._name)
        writer = writer.option("checkpointLocation", checkpoint)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        if self.on_progress:
            told = self.query, lambda: self.counters, self.on_progress
            frame.sparkSession.streams.addListener(ProgressListener(frame.sparkSession, *told))

    def _started(self) -> None:
        self._rotator = Rotator(self._acker).start()
        self._thread.start()
        self._is_started.set()

    def __enter__(self) -> TrackedQuery:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the query. A micro-batch in work is left as it is: the next start goes on with it."""
        self._is_stopped = True
        self.query.stop()
        self._stop.set()
        self._thread.join()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the query has ended. False if it has not. Raises the error for which it ended."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        if self.last_error:
            raise self.last_error
        return True

    @property
    def progress(self) -> dict[str, Any]:
        """What Spark has last said of the query, and what we have counted under 'redis_acker'."""
        return with_counters(self.query.lastProgress, self.counters)

    @property
    def is_active(self) -> bool:
        return self._thread.is_alive()

    @property
    @abstractmethod
    def counters(self) -> StreamCounters:
        """What it has counted since it was started."""

    # -- micro-batches -------------------------------------------------------------------------------------------

    def _process(self, batch: DataFrame, batch_id: int) -> str:
        """Called by Spark for each micro-batch: also, after a crash, for one that is done in part or as a whole.
        Returns what Spark is to be told of its failure."""
        self._is_started.wait()
        try:
            self._patiently(self._run_batch, batch, batch_id)
        except Exception as error:
            if self._is_stopped:
                return _STOPPED
            if self.last_error is None:
                self.last_error = error if isinstance(error, AckerError) else error_of(error, "its micro-batch")
            return "".join(traceback.format_exception(error))
        return ""

    @abstractmethod
    def _run_batch(self, batch: DataFrame, batch_id: int) -> None: ...

    def _count_batch(self, batch_id: int, rows: int, begin_s: float) -> None:
        self._batches, self._messages = self._batches + 1, self._messages + rows
        seconds = time.monotonic() - begin_s
        log.info("Micro-batch %d of %s: %s messages in %.1f s; in all %s", batch_id, self._name, f"{rows:,}", seconds,
                 self.counters)  # fmt: skip

    def _patiently(self, work: Process, batch: DataFrame, batch_id: int) -> None:
        """Does something again after the store was away."""
        until_s: float | None = None
        while True:
            try:
                return work(batch, batch_id)
            except _AWAY as error:
                now_s = time.monotonic()
                if until_s is None:
                    until_s = now_s + STORE_AWAY_S
                    log.warning("The stream of %s waits, and will go on: %s", self._name, error)
                if now_s > until_s or self._is_stopped:
                    raise
                self._stop.wait(LOOK_EVERY_S)

    # -- beside them ---------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        """Until the query has ended."""
        try:
            while not self._stop.wait(LOOK_EVERY_S) and self.query.isActive:
                self._try_look()
            if not self._is_stopped:
                self._try_look()  # what is due when a query ends by itself
        finally:
            self._leave()

    def _try_look(self) -> None:
        try:
            self._look()
        except _AWAY as error:
            log.warning("The stream of %s keeps trying: %s", self._name, error)
        except AckerError as error:
            self.last_error = error
            log.error("The stream of %s stops: %s", self._name, error)
            self.query.stop()
        except Exception:
            log.exception("The thread of the stream of %s met an error; it continues.", self._name)

    @abstractmethod
    def _look(self) -> None:
        """What is done every LOOK_EVERY_S."""

    def _leave(self) -> None:
        """The query has ended."""
        try:
            if not self._is_stopped and self.last_error is None and (raised := self.query.exception()):
                self.last_error = error_of(raised, "its micro-batch")
        except Exception as error:  # Spark may be gone
            log.warning("Why the query of %s has ended is not known: %s", self._name, error)
        self._rotator.stop()
