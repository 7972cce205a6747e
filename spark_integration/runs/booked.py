"""A run whose tasks keep the books. The driver holds the spout, reads the final events while the job runs, and
continues where a run that died has stopped."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from pyspark.sql import SparkSession

from redis_acker import Acker, Rotator
from redis_acker.errors import AckerError
from redis_acker.store.message_ids import MessageId
from redis_acker.store.progress import FORMAT, SUNK, PartitionProgress, RunAbout, RunProgress
from spark_integration.errors import error_of
from spark_integration.runs.books import Books
from spark_integration.runs.messages import Messages
from spark_integration.runs.run import RunOptions
from spark_integration.runs.spout import RUN, RunSpout
from spark_integration.runs.summary import FailedMessage, Summary
from spark_integration.runs.watch import Watch
from spark_integration.workers import StoreAddress, tag_jobs, untag_jobs

MOST_LISTED = 1000
"""How many failures a summary lists; the store knows all of them."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InputFingerprint:
    """Shows whether a run reads the same input as an earlier one, split into the same partitions."""

    text: str
    """Empty if there is no way to know."""
    why_not: str
    """Why there is none."""
    partitions: int
    """0 if that is not known beforehand."""


class BookedRun:
    """A context manager: inside it the run holds its spout. What is complete stays complete if the job fails."""

    def __init__(
        self, messages: Messages, options: RunOptions, input_fingerprint: InputFingerprint, steps: str
    ) -> None:
        self.name = os.urandom(8).hex()
        self._messages, self._options = messages, options
        self._input_fingerprint, self._steps = input_fingerprint, steps
        self._acker: Acker = options.acker
        self._spark: SparkSession = messages.frame.sparkSession
        number = self._acker.spout_number(messages.spout)
        self._progress = RunProgress(self._acker, number)
        self._spout = RunSpout(self._acker, messages.spout, options.retries, self._progress.stored_name)
        self._tag = self.name
        """Of its Spark jobs; the name may become that of the run with which it goes on."""
        self._tally = _Tally(self._acker, messages.spout, self._spout)
        self._watch = Watch(
            self._spark,
            self._acker,
            [_WatchedRun(self)],
            tag=self._tag,
            max_failures=options.max_failures,
            progress=options.progress,
        )
        self._completed_before = 0
        self._failed_before: set[MessageId] = set()

    # -- beginning and end ---------------------------------------------------------------------------------------

    def __enter__(self) -> BookedRun:
        self._start_s = time.monotonic()
        self._rotator = Rotator(self._acker).start()
        try:
            failed = self._spout.take_lease()
            self._tally.read()
            roots = {one.root for one in (*failed, *self._tally.failures.values()) if one.reason == "timeout"}
            self._tally.reset()
            self._go_on_or_start(timed_out=roots)
            tag_jobs(self._spark, self._tag)
            self._watch.start()
        except BaseException:
            self._rotator.stop()
            self._spout.close()
            raise
        return self

    def _go_on_or_start(self, *, timed_out: set[int]) -> None:
        about, partitions = self._progress.read()
        why_not = self._why_not_continue(about)
        if about is None or why_not:
            if about is not None:
                log.warning("Spout %s starts from the beginning: %s.", self._messages.spout, why_not)
                self._abandon(partitions, "the earlier run died")
            where = f"{socket.gethostname()} pid {os.getpid()}"
            now_ms = self._acker.shards.time_ms(0)
            shape = self._input_fingerprint.partitions, self._input_fingerprint.text, self._steps
            self._progress.start(self.name, RunAbout(self._messages.spout, now_ms, where, *shape))
            return
        self.name = self._progress.name
        self._completed_before = sum(one.done - one.failed + self._acked_in_work(one, timed_out) for one in partitions)
        self._failed_before = set(self._spout.failed_before())
        began = datetime.fromtimestamp(about.started_ms / 1000).strftime("%H:%M")
        other = " (with different steps)" if about.steps != self._steps else ""
        log.warning(
            "%s messages of spout %s were completed by the run of %s%s, going on with the rest.",
            f"{self._completed_before:,}",
            self._messages.spout,
            began,
            other,
        )

    def _acked_in_work(self, partition: PartitionProgress, timed_out: set[int]) -> int:
        """How many messages of the portion in work were completed: a worker that died may have acked a part of it."""
        if partition.stage != SUNK:
            return 0
        roots = self._progress.roots_of(partition.first, partition.rows)
        return partition.rows - partition.now_failed - self._acker.extend(roots) - len(timed_out & {*roots.tolist()})

    def _why_not_continue(self, about: RunAbout | None) -> str:
        """Why the stored run cannot be continued; empty if it can."""
        if about is None:
            return ""
        if not self._options.resume:
            return "it was told to, with resume=False"
        if about.format != FORMAT:
            return f"another version wrote the earlier run (its format is {about.format}, this version's {FORMAT})"
        if not self._input_fingerprint.text:
            return f"an earlier run died, but {self._input_fingerprint.why_not}"
        if about.input != self._input_fingerprint.text:
            return (
                "an earlier run died, but its input was different, or split into different partitions (as with another "
                "number of cores)"
            )
        return ""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        raised = error
        if isinstance(error, Exception) and not isinstance(error, AckerError):
            raised = self._translate(error)
        try:
            try:
                untag_jobs(self._spark, self._tag)
            except Exception:
                log.warning("Spark is gone; the run ends without it.")
            self._watch.stop()
            if self._spout.has_lease():
                if error is None:
                    self._acker.shards.failed_rows(self._progress.name).delete()
                    self._progress.drop()
                else:
                    self._abandon(self._progress.read()[1], f"{type(raised).__name__}: {raised}")
                self._spout.close()
        except AckerError as trouble:
            if error is None:
                raise
            log.error("The store cannot be reached, so what a failed run left pending will time out: %s", trouble)
        finally:
            self._watch.stop()
            self._rotator.stop()
        if raised is not None and raised is not error:
            raise raised from error

    def _translate(self, error: Exception) -> AckerError:
        try:
            self._watch.check()
        except AckerError as stopped:  # the watch has cancelled the job
            return stopped
        unfinished = "what it had in work; completed messages stay so, and the next run continues with the rest"
        return error_of(error, unfinished)

    def _abandon(self, partitions: Iterable[PartitionProgress], error: str) -> None:
        """Fails what was in progress. It does not count as an attempt: the run failed, not its messages."""
        left = [roots for one in partitions if one.rows and (roots := self._progress.leave(one.partition)) is not None]
        if left:
            roots = np.concatenate(left)
            self._acker.fail(roots, component=RUN, error=error)
            self._spout.note_failures(without=roots)

    # -- passes over the input -----------------------------------------------------------------------------------

    def books(self, messages: Messages) -> Books:
        """What the workers of the next pass are told. Each pass over a part of the messages has a number of its own."""
        number = 0 if messages.only is None else self._progress.next_pass()
        known = self._spout.known_before()
        keys = messages.keys_of(known)
        order = sorted(keys)
        return Books(
            StoreAddress.of(self._acker),
            self._progress.name,
            self._spout.number,
            messages.message_id,
            number,
            self._options.retries.max_attempts,
            np.array(order, dtype=np.int64),
            [known[keys[key]] for key in order],
        )

    def replays(self) -> Iterator[Messages]:
        """The messages that get another attempt in this run, pass by pass: first those that failed in the run that
        died, then, as often as `replays` says, those that failed in the last pass."""
        if again := self._failed_now(among=self._failed_before):
            yield self._messages.with_only(again)
        for _ in range(self._options.replays):
            if not (again := self._failed_now(among=self._tally.failed_ids)):
                return
            self._tally.failed_ids.clear()
            time.sleep(self._options.retries.pause_ms(max(again.values())) / 1000)
            yield self._messages.with_only(again)

    def _failed_now(self, among: set[MessageId]) -> dict[MessageId, int]:
        """Which of some messages have failed without being given up, and how often."""
        self._tally.read()
        self._watch.check()
        failed = self._spout.failed_before()
        return {one: failed[one] for one in among & failed.keys()}

    def summary(self, rows: int) -> Summary:
        tally = self._tally
        tally.read()
        self._watch.check()
        return Summary(
            (self._messages.spout,),
            rows,
            self._completed_before + tally.completed,
            tally.dead,
            tuple(tally.failures.values()),
            time.monotonic() - self._start_s,
            self._completed_before,
        )


class _Tally:
    """Counts final events as they come out of the streams, and notes failed attempts."""

    def __init__(self, acker: Acker, spout: str, run_spout: RunSpout) -> None:
        self._acker, self._name, self._spout = acker, spout, run_spout
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.completed = self.failed = self.dead = 0
        self.failures: dict[MessageId | None, FailedMessage] = {}
        """The first ones, each with its last failure."""
        self.failed_ids: set[MessageId] = set()
        """In the current pass."""

    def read(self) -> None:
        """Reads what is there. Threads may call it at the same time."""
        with self._lock:
            # Failures first: a message may be complete under other roots than those that timed out.
            for failure in self._spout.note_failures():
                self.failed += 1
                self.dead += failure.dead
                if failure.message_id is not None:
                    self.failed_ids.add(failure.message_id)
                if failure.message_id in self.failures or len(self.failures) < MOST_LISTED:
                    self.failures[failure.message_id] = failure
            with self._acker.completions(self._name, consumer=RUN) as completions:
                while events := completions.read():
                    for event in events:
                        self.completed += len(event)
                        if known := [one for one in event.message_ids if one is not None]:
                            self._spout.completed(known)
                            for one in known:
                                self.failures.pop(one, None)
                    completions.release(events)


@dataclass(frozen=True)
class _WatchedRun:
    """The run as its watch sees it."""

    run: BookedRun

    @property
    def name(self) -> str:
        return self.run._messages.spout

    def renew_lease(self) -> None:
        self.run._spout.renew_lease()

    def extend(self) -> None:
        self.run._progress.keep()  # workers keep their roots alive themselves

    def counts(self) -> tuple[int, int]:
        self.run._tally.read()
        return self.run._tally.completed, self.run._tally.failed
