"""Counts the final events of a run as they come out of the streams."""

from __future__ import annotations

import threading

from redis_acker import Acker
from redis_acker.store.message_ids import MessageId
from spark_integration.runs.spout import RUN, RunSpout
from spark_integration.runs.summary import FailedMessage

MOST_LISTED = 1000
"""How many failures a summary lists; the store knows all of them."""


class Tally:
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
