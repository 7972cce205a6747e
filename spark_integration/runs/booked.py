"""A run whose tasks keep the books. The driver holds the spout, reads the final events while the job runs, and
continues where a run that died has stopped."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redis_acker.store.message_ids import MessageId
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import FORMAT, SUNK, PartitionProgress, RunAbout
from spark_integration.runs.books import Books
from spark_integration.runs.done_keys import Settling
from spark_integration.runs.life import RunLife, RunOptions
from spark_integration.runs.messages import MessageFrame
from spark_integration.runs.spout import RUN, RunSpout
from spark_integration.runs.summary import Summary
from spark_integration.runs.tally import Tally

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
    content: str = ""
    """Shows whether it is the same input, however it is split. Empty if there is no way to know."""


class BookedRun(RunLife):
    """A context manager: inside it the run holds its spout. What is complete stays complete if the job fails."""

    def __init__(
        self,
        messages: MessageFrame,
        options: RunOptions,
        input_fingerprint: InputFingerprint,
        steps: str,
        count: Callable[[], int | None] = lambda: None,
        *,
        hands_over: bool = False,
    ) -> None:
        """count: says how many messages there are, if that is cheap to know. hands_over: its rows leave for another
        application, which completes the messages after it."""
        super().__init__(messages.frame.sparkSession, options, [_WatchedRun(self)])
        self._messages, self._input_fingerprint, self._steps = messages, input_fingerprint, steps
        if in_stream := options.in_stream:
            self._progress, self._spout, self._tally = in_stream.progress, in_stream.spout, in_stream.tally
        else:
            self._progress = RunProgress(self._acker, self._acker.spout_number(messages.spout))
            self._spout = RunSpout(self._acker, messages.spout, options.retries, self._progress.stored_name)
            self._tally = Tally(self._acker, messages.spout, self._spout, reads_completions=not hands_over)
        self._is_in_stream, self._hands_over = options.in_stream is not None, hands_over
        self._completed_before = 0
        self._count = count
        self._messages_in_all: int | None = None
        self.rows_done: int | None = None
        """How many rows there are, if the run that died has done all of them: then none has to be read."""
        self._failed_before: set[MessageId] = set()
        self._has_begun = False
        self._by_keys = options.resume == "keys"
        self._done_before = 0
        """The block sequence below which the keys of messages were kept that are done."""

    # -- beginning and end ---------------------------------------------------------------------------------------

    def _take(self) -> None:
        self._spout.take_lease()
        if self._is_in_stream and not self._progress.stored_name():
            self._start()  # as nearly always: a micro-batch that nobody has begun
            self._has_begun = True
            return
        # What a run that died had in work may have timed out since: that is no attempt.
        failed = self._spout.note_failures(waiting=self._progress.pending(but_sunk=True))
        self._tally.read()
        roots = {one.root for one in (*failed, *self._tally.failures.values()) if one.reason == "timeout"}
        self._tally.reset()
        if self._hands_over and not self._is_in_stream:
            self._tally.count_from(self._acker.allocate(self._messages.spout))
        self._go_on_or_start(timed_out=roots)
        self._has_begun = True
        if self._watch.shows_progress and self._messages_in_all is None:
            self._messages_in_all = self._count()

    def _go_on_or_start(self, *, timed_out: set[int]) -> None:
        about, partitions = self._progress.read()
        why_not = self._why_not_continue(about)
        if about is None or why_not:
            if about is not None:
                log.warning("Spout %s starts from the beginning: %s.", self._messages.spout, why_not)
                self._spout.start_over(self._progress)
            self._start()
            return
        if self._by_keys:
            settling = Settling(self._acker, self._progress)
            self._completed_before, self._done_before = settling.settle(timed_out)
            self._tally.read()
            self._tally.reset()  # what was acked just now is counted
        else:
            self.name = self._progress.stored_name()
            self._completed_before = sum(
                one.done - one.failed + self._acked_in_work(one, timed_out) for one in partitions
            )
        self._progress.rename(self.name)
        self._count_messages(about, partitions)
        self._failed_before = set() if self._is_in_stream else set(self._spout.failed_before())
        began = datetime.fromtimestamp(about.started_ms / 1000).strftime("%H:%M")
        other = " (with different steps)" if about.steps != self._steps else ""
        of_all = "" if self._messages_in_all is None else f" of {self._messages_in_all:,}"
        log.warning(
            "%s messages of spout %s were completed by the run of %s%s, continuing with the rest.",
            f"{self._completed_before:,}{of_all}",
            self._messages.spout,
            began,
            other,
        )

    def _count_messages(self, about: RunAbout, partitions: list[PartitionProgress]) -> None:
        """That tasks came to an end proves nothing, but that they have done as many rows as the source says it has."""
        self._messages_in_all = self._count()
        ended = [one.done for one in partitions if one.place[0] == 0 and one.has_ended]
        if 0 < about.partitions == len(ended) and not self._by_keys:  # whose partitions lack what earlier runs did
            if self._messages_in_all is None:
                self._messages_in_all = sum(ended)
            elif self._messages_in_all == sum(ended):
                self.rows_done = self._messages_in_all

    def _start(self) -> None:
        where, now_ms = f"{socket.gethostname()} pid {os.getpid()}", self._acker.shards.time_ms(0)
        found = self._input_fingerprint
        shown = found.content if self._by_keys else found.text
        about = RunAbout(self._messages.spout, now_ms, where, found.partitions, shown, self._steps)
        self._progress.start(self.name, about, keeps_keys=self._by_keys)

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
        if self._by_keys:
            return self._why_not_by_keys(about)
        if self._progress.keeps_keys:
            return "an earlier run with resume='keys' died, and only another of that kind can go on with it"
        if not self._input_fingerprint.text:
            return f"an earlier run died, but {self._input_fingerprint.why_not}"
        if not about.input:
            return (
                "an earlier run died, but there is no way to know its input again (its job had a shuffle, for instance)"
            )
        if about.input != self._input_fingerprint.text:
            return (
                "an earlier run died, but its input was different, or split into different partitions (as with another "
                "number of cores)"
            )
        return ""

    def _why_not_by_keys(self, about: RunAbout) -> str:
        if not self._progress.keeps_keys:
            return "an earlier run died, but it kept no keys: it was not started with resume='keys'"
        if about.input != self._input_fingerprint.content:
            return "an earlier run died, but its input was different"
        return ""

    def _end(self, error: BaseException | None) -> None:
        self._watch.stop()
        if self._spout.has_lease():
            if not self._has_begun:
                pass  # what is stored is another run's
            elif error is None:
                if not self._is_in_stream:
                    self._acker.shards.failed_rows(self._progress.name).delete()
                    self._progress.drop()
            else:
                self._abandon(f"{type(error).__name__}: {error}")
            self._spout.close()

    def _total(self) -> tuple[int, int | None]:
        return self._completed_before, self._messages_in_all

    def _unfinished(self) -> str:
        return "the messages in progress; completed messages stay complete, and the next run continues with the rest"

    def _abandon(self, error: str) -> None:
        """Fails what was in progress. It does not count as an attempt: the run failed, not its messages."""
        if self._progress.stored_name() == self.name:  # if not, another run has taken its place
            self._progress.close()  # first: Spark does not wait for the job's other tasks
            for one in self._progress.read()[1]:
                if one.rows and (roots := self._progress.leave(one.partition)) is not None:
                    self._acker.fail(roots, component=RUN, error=error)
        self._spout.note_failures()

    # -- passes over the input -----------------------------------------------------------------------------------

    def books(self, messages: MessageFrame, **options: Any) -> Books:
        """What the workers of the next pass are told. Each pass over a part of the messages has a number of its own.
        options: what else they are told."""
        number = 0 if messages.only is None else self._progress.next_pass()
        return messages.books(
            self._acker,
            self._progress.name,
            pass_number=number,
            max_attempts=self._options.retries.max_attempts,
            known=self._spout.known_before(),
            keeps_keys=self._by_keys,
            done_before=0 if number else self._done_before,
            **{"tells_ids": self._hands_over, **options},
        )

    def replays(self) -> Iterator[MessageFrame]:
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
            self._seconds,
            self._completed_before,
            rows - self._completed_before - tally.failed if self._hands_over and not self._is_in_stream else 0,
        )


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
