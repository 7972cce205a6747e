"""One run of a tracked job: roots for all messages, kept alive while Spark works, and their final events."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from redis_acker import Acker, Rotator
from redis_acker.errors import AckerError
from redis_acker.retries.book import RetryPolicy
from redis_acker.store.streams import Cause
from spark_integration.errors import error_of, wrong_python_in
from spark_integration.runs.inputs import Input, RunInput
from spark_integration.runs.summary import Summary
from spark_integration.runs.tracking import (
    Failed,
    InlineTables,
    Keys,
    NotedRows,
    Tracking,
    check_size,
    fail_keys,
    send_tables,
)
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
    resume: bool = True


class Run:
    """A context manager. Inside it all messages are pending; when it ends each of them is completed or failed. An
    error of Spark's fails all that are pending, and is raised as one of ours."""

    def __init__(self, inputs: Sequence[Input], options: RunOptions, *, is_replay: bool = False) -> None:
        self.name = os.urandom(8).hex()
        self._spark, self._acker, self._is_replay = inputs[0].frame.sparkSession, options.acker, is_replay
        self.inputs: list[RunInput] = [one.in_run(self.name, options.acker, options.retries) for one in inputs]
        self._noted_groups = NotedRows(options.acker, self.name)
        self._watch = Watch(
            self._spark,
            self._acker,
            self.inputs,
            tag=self.name,
            max_failures=options.max_failures,
            progress=options.progress,
        )

    def __len__(self) -> int:
        """How many messages and deliveries it tracks."""
        return sum(map(len, self.inputs))

    # -- beginning and end ---------------------------------------------------------------------------------------

    def __enter__(self) -> Run:
        self._start_s = time.monotonic()
        self._rotator = Rotator(self._acker).start()
        try:
            for one in self.inputs:
                one.take_lease()
            self._watch.start()
            for one in self.inputs:
                one.read()
            check_size(self._spark, len(self))
            for one in self.inputs:
                one.init()
            tables = send_tables(self._spark, [one.key_table() for one in self.inputs])
            self.tracking = Tracking.of(self._acker, self.name, tables, is_replay=self._is_replay)
            tag_jobs(self._spark, self.name)
        except BaseException as error:
            self._end(error)
            if wrong := wrong_python_in(error):
                raise wrong from error
            raise
        return self

    def free_tables(self) -> None:
        """Frees what workers were sent. After this no frame of the run can be computed again."""
        if not isinstance(self.tracking.tables, InlineTables):
            self.tracking.tables.destroy()  # type: ignore[attr-defined]

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        raised = error
        if isinstance(error, Exception) and not isinstance(error, AckerError):
            raised = self._translate(error)
        try:
            untag_jobs(self._spark, self.name)
        except Exception:
            log.warning("Spark is gone; the run ends without it.")
        finally:
            self._end(raised)
        if raised is not None and raised is not error:
            raise raised from error

    def _translate(self, error: Exception) -> AckerError:
        try:
            self._watch.check()
        except AckerError as stopped:  # the watch has cancelled the job
            return stopped
        return error_of(error, f"{len(self):,} messages")

    def _end(self, error: BaseException | None) -> None:
        """Lets go of everything. Nothing of a job that failed counts as done."""
        try:
            # A run that has lost its spout leaves it to the one that has it now.
            mine = [one for one in self.inputs if one.has_lease()]
            if error is not None:
                for one in mine:
                    one.fail(f"{type(error).__name__}: {error}")
                    one.final_events()
            self._noted_groups.delete()
            self._watch.stop()  # not before, since it renews leases; not later, since it would take them again
            for one in mine:
                one.close()
        except AckerError as trouble:
            if error is None:
                raise
            log.error("The store cannot be reached, so what a failed run left pending will time out: %s", trouble)
        finally:
            self._watch.stop()
            self._rotator.stop()

    # -- what becomes of the messages ----------------------------------------------------------------------------

    def fail(self, failed: Failed) -> None:
        """Fails what is behind some keys, from the driver."""
        fail_keys(self._acker, self.name, self.tracking.tables.value, failed)

    def failed_groups(self, *, without: set[int]) -> dict[Cause, set[int]]:
        """The keys of groups whose rows failed after an aggregation, by cause."""
        rest = {cause: set(keys) - without for cause, keys in self._noted_groups.read().items()}
        return {cause: keys for cause, keys in rest.items() if keys}

    def complete(self) -> Summary:
        """Acks what has not failed."""
        self._watch.check()
        for one in self.inputs:
            one.complete(self._token)
        ends = [one.final_events() for one in self.inputs]
        failures = tuple(failure for _, failed in ends for failure in failed)
        return Summary(
            tuple(one.name for one in self.inputs),
            len(self),
            sum(completed for completed, _ in ends),
            sum(failure.dead for failure in failures),
            failures,
            time.monotonic() - self._start_s,
        )

    def hand_over(self, keys: Keys, edges: Keys) -> None:
        """Acks everything in exchange for the edges of rows that another application has to ack."""
        self._watch.check()
        for one in self.inputs:
            one.hand_over(keys, edges, self._token)

    @property
    def _token(self) -> str:
        return f"run {self.name}"
