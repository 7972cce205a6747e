"""A thread beside the Spark job: it renews leases, keeps roots alive, shows progress, and cancels a job that fails."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from redis_acker import Acker
from redis_acker.errors import AckerError
from spark_integration.errors import TooManyFailures
from spark_integration.runs.inputs import Watched
from spark_integration.runs.keeping import STORE_AWAY
from spark_integration.workers import cancel_jobs, is_connect

_LOOK_EVERY_S = 0.5
_WIPE_LINE = "\r\033[K"
_BAR = 20
"""Characters of a bar."""

log = logging.getLogger(__name__)


class Watch:
    """A thread that looks at the run about twice a second."""

    def __init__(
        self,
        spark: SparkSession,
        acker: Acker,
        inputs: Sequence[Watched],
        *,
        tag: str,
        max_failures: int | None,
        progress: bool | None,
        total: Callable[[], tuple[int, int | None]],
    ) -> None:
        """total: says how many messages were complete when the run began, and how many there are, if that is known."""
        self._spark, self._acker, self._inputs = spark, acker, inputs
        self._tag, self._max_failures = tag, max_failures
        self.shows_progress = sys.stderr.isatty() if progress is None else progress
        self._total = total
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: AckerError | None = None

    def start(self) -> None:
        self._begin_s = time.monotonic()
        self._thread = threading.Thread(target=self._loop, name="watch", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises the error for which the watch has cancelled the job, or would if it looked once more."""
        if self._error:
            raise self._error
        if self._max_failures is not None:
            self._counts()

    def stop(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
        if self.shows_progress:
            print(_WIPE_LINE, end="", file=sys.stderr, flush=True)

    def _loop(self) -> None:
        # Well before roots expire, and not sooner: a short job never pays for it.
        extend_every_s = self._acker.settings.timeout_ms / 3000
        extend_at_s = time.monotonic() + extend_every_s
        while not self._stop.wait(min(_LOOK_EVERY_S, extend_every_s)):
            try:
                for one in self._inputs:
                    one.renew_lease()
                if time.monotonic() >= extend_at_s:
                    extend_at_s = time.monotonic() + extend_every_s
                    for one in self._inputs:
                        one.extend()
                self._look()
            except STORE_AWAY as error:
                log.warning("A run waits for the store: %s", error)
            except AckerError as error:
                self._error = error
                cancel_jobs(self._spark, self._tag)
                return
            except Exception:  # of Spark, which may be gone: then the job fails too
                log.exception("The thread that watches a run met an error; it continues.")

    def _look(self) -> None:
        completed, failed = self._counts()
        if self.shows_progress:
            self._show(completed, failed)

    def _counts(self) -> tuple[int, int]:
        """How many have completed and failed. Raises TooManyFailures."""
        counts = [one.counts() for one in self._inputs]
        completed, failed = sum(one for one, _ in counts), sum(one for _, one in counts)
        if self._max_failures is not None and failed > self._max_failures:
            raise TooManyFailures(
                f"{failed:,} messages have failed, and this run allows {self._max_failures:,}: its job was cancelled, "
                "and the unfinished messages have failed with it. Look at the first errors, then run it again."
            )
        return completed, failed

    def _show(self, completed: int, failed: int) -> None:
        names = ", ".join(one.name for one in self._inputs)
        before, total = self._total()
        share = self._share_of_tasks() if total is None else (before + completed + failed) / max(total, 1)
        line = progress_line(names, completed, failed, time.monotonic() - self._begin_s, share, before)
        print(f"{_WIPE_LINE}{line[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)

    def _share_of_tasks(self) -> float | None:
        """How far Spark has come with the stages that it is at, where it can be asked."""
        if is_connect(self._spark):
            return None
        tracker = self._spark.sparkContext.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
        tasks = sum(info.numTasks for info in stages)
        return sum(info.numCompletedTasks for info in stages) / tasks if tasks else None


def progress_line(name: str, completed: int, failed: int, seconds: float, share: float | None, before: int = 0) -> str:
    """What is shown of a run. share: of its work that is done, if that is known; a run that goes on began at before."""
    rate = (completed + failed) / seconds if seconds else 0.0
    bar = left = ""
    if share is not None:
        share = min(share, 1.0)
        bar = f"[{'#' * int(share * _BAR):-<{_BAR}}] {share:.0%}, "
        done_now = share * (completed + failed) / (before + completed + failed) if before else share
        if done_now:
            left = f", about {seconds * (1 - share) / done_now:,.0f} s left"
    return f"{name}: {bar}{before + completed:,} completed, {failed:,} failed, {rate:,.0f}/s, {seconds:.0f} s{left}"
