"""Brings failed messages of a stream again: rows that were kept, in jobs of their own beside the micro-batches."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

from redis_acker.errors import AckerError, MemoryFull, ServerUnavailable, SpoutTaken
from redis_acker.store.message_ids import MessageId
from redis_acker.store.progress import RunProgress
from spark_integration.frames.frame import TrackedFrame
from spark_integration.runs.done_keys import Settling
from spark_integration.runs.in_stream import RunInStream
from spark_integration.runs.kept_rows import bounded, pack_rows, unpack_rows
from spark_integration.streams.deaths import alone_with, death_in
from spark_integration.streams.spout import StreamSpout
from spark_integration.streams.tally import StreamTally
from spark_integration.workers import cancel_jobs, tag_jobs, untag_jobs

if TYPE_CHECKING:
    from spark_integration.streams.query import StreamPlan

AT_ONCE = 1_000
"""Messages that are tried again in one job."""

MOST_CHARS = 4_000_000
"""Characters of their rows."""

PARTS = 8
"""Into which a job is split that failed as a whole. Among a thousand messages the one that fails it is found after four
failed jobs; by halves it would be ten, each as long as sink_timeout_s if it hangs."""

PART = "retries"

NOT_KNOWN = "its row is not known any more, so it cannot be tried again"

log = logging.getLogger(__name__)


def _why(error: AckerError) -> str:
    """Of the failure of a job that one message had to itself."""
    death = death_in(error)
    return alone_with(death) if death else str(error)


class Retries:
    """The retries of one query. They run in its thread, one job at a time, in one partition: a message that is slow or
    keeps failing takes one core at most, and no micro-batch waits for it."""

    def __init__(self, plan: StreamPlan, spout: StreamSpout, tally: StreamTally, told: dict[str, Any]) -> None:
        """told: what all runs of the query are told."""
        self._plan, self._spout, self._tally, self._told = plan, spout, tally, told
        self._spark = plan.frame.sparkSession
        self._progress = RunProgress(plan.acker, spout.number, part=PART)
        self._tag = f"retries {secrets.token_hex(8)}"
        self._is_cancelled = self._has_died = False

    def run_due(self) -> None:
        """Tries all messages again whose pause is over now, each of them once."""
        self._settle()
        now_ms, tried = self._plan.acker.shards.time_ms(0), set[MessageId]()
        while not self._is_cancelled and (due := self._spout.due(now_ms, AT_ONCE, MOST_CHARS, without=tried)):
            tried |= due.keys()
            self._spout.count_retries(due)
            self._run(due)

    def cancel(self) -> None:
        """Ends the job in work, from another thread."""
        self._is_cancelled = True
        cancel_jobs(self._spark, self._tag)

    def _settle(self) -> None:
        """Brings a job that died to rest. What it has completed is complete; the rest is in the retry book."""
        if self._progress.stored_name():
            if self._progress.keeps_keys:
                Settling(self._plan.acker, self._progress).settle(set())
                self._progress.drop()
            else:
                self._spout.start_over(self._progress)
            self._has_died = True
        if self._has_died:
            self._spout.find_in_flight()
            self._tally.read()  # what was complete by then, and so not pending
            self._has_died = False

    def _run(self, due: dict[MessageId, list[Any]]) -> None:
        """If the job fails as a whole, it is split until the message is found that fails it."""
        self._spout.begin_attempts(due)
        try:
            self._has_died = True
            self._job(due)
            self._has_died = False
        except (ServerUnavailable, MemoryFull, SpoutTaken):
            raise
        except AckerError as error:
            if self._is_cancelled:
                return
            self._settle()
            left = [one for one in due if self._spout.is_waiting(one)]
            if len(due) == 1:
                for message_id in left:
                    self._spout.note_attempt(message_id, _why(error))
                return
            size = -(-len(left) // PARTS)
            for at in range(0, len(left), max(size, 1)):
                self._run({one: due[one] for one in left[at : at + size]})

    def _job(self, due: dict[MessageId, list[Any]]) -> None:
        table = unpack_rows(list(due.values()), self._plan.schema)
        frame = self._spark.createDataFrame(table, self._plan.frame.schema).coalesce(1)
        in_stream = RunInStream(
            self._spout,
            self._tally,
            self._progress,
            f"retries {secrets.token_hex(8)}",
            self._tag,
            is_replay=True,
            **self._told,
        )
        tag_jobs(self._spark, self._tag)
        try:
            self._plan.run(self._plan.tracked(frame, in_stream))
        finally:
            untag_jobs(self._spark, self._tag)
        self._tally.read()
        self._progress.drop()

    def find_rows(self, tracked: TrackedFrame) -> None:
        """Keeps the rows of a micro-batch whose messages have failed, where their worker could not."""
        missing = self._spout.without_row()
        if not missing:
            return
        found = dict(tracked.rows_of(missing))
        self._spout.keep_rows({one: bounded(pack_rows(row)[0]) for one, row in found.items()})
        for message_id in missing:
            if message_id not in found:
                self._spout.give_up(message_id, NOT_KNOWN)
