"""What all runs of tracked jobs have in common: how they begin, how they end, and what an error of Spark's becomes."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TypeVar

from pyspark.sql import SparkSession

from redis_acker import Acker, Rotator
from redis_acker.errors import AckerError
from redis_acker.retries.policy import RetryPolicy
from spark_integration.errors import error_of
from spark_integration.runs.in_stream import RunInStream
from spark_integration.runs.inputs import Watched
from spark_integration.runs.watch import Watch
from spark_integration.workers import tag_jobs, untag_jobs

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOptions:
    """How messages are tracked; track() describes the options."""

    acker: Acker
    retries: RetryPolicy
    replays: int
    max_failures: int | None
    progress: bool | None
    resume: bool | Literal["keys"] = True
    in_stream: RunInStream | None = None
    """Set if the run is one of a stream."""


AnyRun = TypeVar("AnyRun", bound="RunLife")


class RunLife:
    """A context manager. Inside it the run holds its spouts, and its Spark jobs are watched. An error of Spark's is
    raised as one of ours. What is complete stays complete."""

    def __init__(self, spark: SparkSession, options: RunOptions, watched: list[Watched]) -> None:
        self.name = os.urandom(8).hex()
        self._tag = self.name
        """Of its Spark jobs; the name may become that of the run with which it goes on."""
        self._spark, self._options, self._acker = spark, options, options.acker
        self._watch = Watch(
            spark,
            options.acker,
            watched,
            tag=self._tag,
            max_failures=options.max_failures,
            progress=options.progress,
            total=self._total,
        )

    # -- what each kind of run does in its own way ---------------------------------------------------------------

    def _take(self) -> None:
        """Takes the spouts, and deals with what runs that died have left there."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Does what has to be done in Spark before the job."""

    def _end(self, error: BaseException | None) -> None:
        """Leaves the store as the next run should find it, and gives the spouts back. Nothing that is in work counts as
        done."""
        raise NotImplementedError

    def _total(self) -> tuple[int, int | None]:
        """How many messages were complete when it began, and how many there are, if that is known."""
        return 0, None

    def _unfinished(self) -> str:
        """What fails with the job, for people."""
        raise NotImplementedError

    # -- beginning and end ---------------------------------------------------------------------------------------

    def __enter__(self: AnyRun) -> AnyRun:
        self._start_s = time.monotonic()
        self._rotator = None if self._options.in_stream else Rotator(self._acker).start()
        try:
            self._take()
            self._watch.start()
            tag_jobs(self._spark, self._tag)
            self._begin()
        except BaseException as error:
            self._leave(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        raised = error
        if isinstance(error, Exception) and not isinstance(error, AckerError):
            raised = self._translate(error)
        try:
            try:
                untag_jobs(self._spark, self._tag)
            except Exception:
                log.warning("Spark is gone; the run ends without it.")
            self._end(raised)
        except AckerError as trouble:
            if error is None:
                raise
            log.error("The store cannot be reached, so what a failed run left pending will time out: %s", trouble)
        finally:
            self._watch.stop()
            if self._rotator:
                self._rotator.stop()
        if raised is not None and raised is not error:
            raise raised from error

    def _translate(self, error: Exception) -> AckerError:
        try:
            self._watch.check()
        except AckerError as stopped:  # the watch has cancelled the job
            return stopped
        return error_of(error, self._unfinished())

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._start_s
