"""Counts the final events of a run as they come out of the streams."""

from __future__ import annotations

from redis_acker import Acker
from redis_acker.store.ids import U64Array, sequence_of
from redis_acker.store.message_ids import MessageId
from redis_acker.store.streams import Completion
from spark_integration.runs.spout import RUN, RunSpout
from spark_integration.runs.summary import FailedMessage

MOST_LISTED = 1000
"""How many failures a summary lists; the store knows all of them."""


class Tally:
    """Counts final events as they come out of the streams, and notes failed attempts."""

    def __init__(self, acker: Acker, spout: str, run_spout: RunSpout, *, reads_completions: bool = True) -> None:
        """reads_completions: otherwise they are left to whoever knows the source (runs/outcomes.py)."""
        self._acker, self._name, self._spout = acker, spout, run_spout
        self._reads_completions, self._from_sequence = reads_completions, 0
        self.waiting: list[tuple[int, int]] = []
        """Spans of roots (see note_failures()) whose timeout is no attempt, since they merely waited."""
        self.reset()

    def reset(self) -> None:
        self.completed = self.failed = self.dead = 0
        self.failures: dict[MessageId | None, FailedMessage] = {}
        """The first ones, each with its last failure."""
        self.failed_ids: set[MessageId] = set()
        """In the current pass."""

    def count_from(self, roots: U64Array) -> None:
        """Counts no failures of roots that were allocated before these."""
        self._from_sequence = sequence_of(int(roots[0]))

    def read(self) -> None:
        """Reads what is there. Threads may call it at the same time."""
        with self._spout.lock:
            # Failures first: a message may be complete under other roots than those that timed out.
            for failure in self._spout.note_failures(waiting=self.waiting):
                if sequence_of(failure.root) >= self._from_sequence:
                    self._count(failure)
            if not self._reads_completions:
                return
            with self._acker.completions(self._name, consumer=RUN) as completions:
                while events := completions.read():
                    handled: list[Completion] = []
                    try:
                        for event in events:
                            if known := event.known_ids:
                                self._spout.completed(known)
                                for one in known:
                                    self.failures.pop(one, None)
                            self._count_completion(event)
                            handled.append(event)
                    finally:
                        completions.release(handled)

    def _count_completion(self, event: Completion) -> None:
        self.completed += len(event)

    def _count(self, failure: FailedMessage) -> None:
        self.failed += 1
        self.dead += failure.dead
        if failure.message_id is not None:
            self.failed_ids.add(failure.message_id)
        if failure.message_id in self.failures or len(self.failures) < MOST_LISTED:
            self.failures[failure.message_id] = failure
