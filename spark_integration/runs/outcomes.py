"""What became of messages whose rows other applications finish."""

from __future__ import annotations

from types import TracebackType

from redis_acker import Acker, RetryPolicy
from redis_acker.store.message_ids import MessageId
from redis_acker.store.progress import RunProgress
from redis_acker.store.streams import Completion
from spark_integration.runs.spout import RUN, RunSpout


class Outcomes:
    """A context manager for the program that owns a spout: what is over leaves its source, what is due comes again.

    For messages that were handed over with sink(anchors=); completions of what to_df() handed over are not told. Inside
    the block the program holds the spout, failures are noted as attempts, and messages that were given up are dead
    letters. The store forgets completions at its end, unless there was an error: remove them from the source inside.
    """

    completed: list[MessageId]
    """What is complete; also what was told before, if the program died before the end of the block."""
    dead: list[MessageId]
    """All messages of the spout that are dead letters."""

    def __init__(self, acker: Acker, *, spout: str, retries: RetryPolicy | None = None) -> None:
        self._acker, self._name = acker, spout
        self._spout = RunSpout(acker, spout, retries or RetryPolicy())

    def __enter__(self) -> Outcomes:
        self._spout.take_lease()
        try:
            self._read()
        except BaseException:
            self._spout.close()
            raise
        return self

    def _read(self) -> None:
        # What a run that died had in work is due at once: nobody is at work on it.
        self._spout.start_over(RunProgress(self._acker, self._spout.number))
        # First: what is over by now, and not pending, is told below.
        self._pending = {one.message_id for one in self._acker.pending(spout=self._name)}
        self._reader = self._acker.completions(self._name, consumer=RUN)
        self._events: list[Completion] = []
        while events := self._reader.read():
            self._events += events
        self._spout.note_failures()
        self.completed = [one for event in self._events for one in event.known_ids]
        self.dead = list(self._spout.dead_ids())
        self._over = {*self.completed, *self.dead}
        self._due_ms = self._spout.due_before()
        self._now_ms = self._acker.shards.time_ms(0)

    def is_due(self, message_id: MessageId) -> bool:
        """Whether it is to be brought now: nobody is at work on it, it is not over, and its pause is over if it has
        failed."""
        if message_id in self._pending or message_id in self._over:
            return False
        return self._due_ms.get(message_id, 0) <= self._now_ms

    @property
    def pending(self) -> int:
        """Messages that somebody is at work on."""
        return len(self._pending)

    @property
    def unfinished(self) -> int:
        """Messages that are pending, or wait for their next attempt."""
        return len(self._pending | (self._due_ms.keys() - self._over))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._spout.has_lease():
                self._spout.completed(self.completed)
                self._reader.release(self._events)
            self._reader.close()
        finally:
            self._spout.close()
