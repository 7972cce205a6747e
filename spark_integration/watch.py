"""What goes on beside a Spark job: it holds spouts, keeps roots alive, shows progress, and stops a job that fails."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Sequence

from pyspark.sql import SparkSession

from redis_acker import Acker
from redis_acker.errors import AckerError, ServerUnavailable
from spark_integration.errors import TooManyFailures
from spark_integration.parts import Part

_LOOK_EVERY_S = 0.5
_WIPE_LINE = "\r\033[K"

log = logging.getLogger(__name__)


class Watch:
    """A thread that looks at the run about twice a second."""

    def __init__(
        self,
        spark: SparkSession,
        acker: Acker,
        sources: Sequence[Part],
        *,
        tag: str,
        max_failures: int | None,
        progress: bool | None,
    ) -> None:
        self._spark, self._acker, self._sources = spark, acker, sources
        self._tag, self._max_failures = tag, max_failures
        self._progress = sys.stderr.isatty() if progress is None else progress
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: AckerError | None = None

    def start(self) -> None:
        self._begin_s = time.monotonic()
        self._thread = threading.Thread(target=self._loop, name="watch", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises what the watch has stopped the job for, or would have if it had looked once more."""
        if self._error:
            raise self._error
        self._look()

    def stop(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
        if self._progress:
            print(_WIPE_LINE, end="", file=sys.stderr, flush=True)

    def _loop(self) -> None:
        # Well before roots expire, and only then: a short job never pays for it.
        keep_every_s = self._acker.settings.timeout_ms / 3000
        keep_at_s = time.monotonic() + keep_every_s
        while not self._stop.wait(min(_LOOK_EVERY_S, keep_every_s)):
            try:
                for source in self._sources:
                    source.hold()
                if time.monotonic() >= keep_at_s:
                    keep_at_s = time.monotonic() + keep_every_s
                    for source in self._sources:
                        source.keep()
                self._look()
            except ServerUnavailable as error:
                log.warning("A run cannot reach the store, and goes on trying: %s", error)
            except AckerError as error:
                self._error = error
                self._spark.interruptTag(self._tag)
                return
            except Exception:  # of Spark, which may be gone: the job will say so
                log.exception("The watch of a run has met an error, and goes on.")

    def _look(self) -> None:
        if not (self._progress or self._max_failures is not None):
            return
        counts = [source.counts() for source in self._sources]
        completed, failed = sum(one for one, _ in counts), sum(one for _, one in counts)
        if self._max_failures is not None and failed > self._max_failures:
            raise TooManyFailures(
                f"{failed:,} messages have failed, and this run allows {self._max_failures:,}: its job was cancelled, "
                "and the unfinished messages have failed with it. Look at the first errors, then run it again."
            )
        if self._progress:
            self._show(completed, failed)

    def _show(self, completed: int, failed: int) -> None:
        tracked = sum(len(source) for source in self._sources)
        seconds = time.monotonic() - self._begin_s
        spouts = ", ".join(source.source.spout for source in self._sources)
        line = (
            f"{spouts}: {tracked:,} tracked, {completed:,} completed, {failed:,} failed, "
            f"{tracked - completed - failed:,} pending, {(completed + failed) / seconds:,.0f}/s, {seconds:.0f} s"
            f"{self._stages()}"
        )
        print(f"{_WIPE_LINE}{line[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)

    def _stages(self) -> str:
        """How far Spark is, where it can be asked."""
        if not hasattr(self._spark, "_sc"):
            return ""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
        done, total = sum(info.numCompletedTasks for info in stages), sum(info.numTasks for info in stages)
        return f", {done} of {total} tasks" if total else ""
