"""Which messages of a tracked query wait for another attempt, and which of them may be tried now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from redis_acker import Acker
from redis_acker.retries.book import Retry
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.message_ids import MessageId
from spark_integration.runs.spout import RunSpout
from spark_integration.runs.tally import Tally


class WaitingSpout(RunSpout):
    """A spout whose failed messages wait until their pause is over. Not all of them may be tried then: some come with
    the micro-batch in work, and another application is at work on others."""

    def __init__(
        self, acker: Acker, name: str, policy: RetryPolicy, rows: Callable[[], str], *, hands_over: bool
    ) -> None:
        """rows: under which name the rows of messages that fail are kept. hands_over: another application completes the
        messages."""
        super().__init__(acker, name, policy, rows)
        self._hands_over = hands_over
        self._in_flight: set[MessageId] = set()
        """Messages in the retry book that another application is at work on."""
        self._of_batch: set[MessageId] | None = None
        """While a micro-batch is in work: messages that have failed in it, or may have. If it is done again they come
        with it, so nothing else may try them until it is finished."""
        self.rows_before: dict[MessageId, list[Any] | None] = {}
        """Of messages that waited when a run of the micro-batch in work began."""
        self.retried = 0

    # -- micro-batches -------------------------------------------------------------------------------------------

    def begin_batch(self) -> None:
        with self.lock:
            self._of_batch = self._of_batch or set()

    def end_batch(self, tally: Tally) -> None:
        """The micro-batch is finished: what has failed in it may be tried again."""
        with self.lock:
            if self._of_batch:
                self._in_flight |= self._pending(among=self._of_batch)
                tally.read()  # what was complete by then, and so not pending
            self._of_batch = None

    def waiting_now(self) -> Collection[MessageId]:
        """Messages that wait, or are being tried again, when the run of a micro-batch begins."""
        with self.lock:
            self.rows_before |= {message_id: retry.payload for message_id, retry in self._retries.items()}
            return set(self._retries)

    # -- what waits ----------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Messages that wait for their next attempt."""
        return len(self._retries) - len(self._in_flight)

    def is_waiting(self, message_id: MessageId) -> bool:
        return message_id in self._retries and message_id not in self._in_flight

    def can_be_tried(self, message_id: MessageId) -> bool:
        return self.is_waiting(message_id) and message_id not in (self._of_batch or ())

    @property
    def to_try(self) -> int:
        """Messages that wait for nothing but the end of their pause."""
        with self.lock:
            return sum(map(self.can_be_tried, self._retries))

    def find_in_flight(self) -> None:
        """Asks the store which messages another application is at work on. Final events are to be read after it."""
        with self.lock:
            self._in_flight = self._pending(among=self._retries)

    def _pending(self, among: Iterable[MessageId]) -> set[MessageId]:
        if not self._hands_over:
            return set()
        pending = {one.message_id for one in self._acker.pending(spout=self._name)}
        return {one for one in among if one in pending}

    def count_retries(self, message_ids: Iterable[MessageId]) -> None:
        """Messages are about to be tried, some of them not for the first time."""
        with self.lock:
            self.retried += sum(self._retry_of(one).attempt > 0 for one in message_ids)

    def begin_attempts(self, message_ids: Collection[MessageId]) -> None:
        """Messages are tried. Those that leave for another application are not due until they have failed."""
        if self._hands_over:
            with self.lock:
                self._in_flight.update(message_ids)

    def forget(self, message_ids: Iterable[MessageId]) -> None:
        ids = list(message_ids)
        self._in_flight.difference_update(ids)
        super().forget(ids)

    def due(
        self, now_ms: int, most: int, most_chars: int, *, without: Collection[MessageId] = ()
    ) -> dict[MessageId, list[Any]]:
        """The rows of messages whose pause is over: no more than so many, with about so many characters."""
        with self.lock:
            rested = [
                (one.due_ms, key, one.payload)
                for key, one in self._retries.items()
                if key not in without and self.can_be_tried(key)
            ]
        found: dict[MessageId, list[Any]] = {}
        for due_ms, message_id, payload in sorted(rested, key=lambda one: one[0]):
            if due_ms > now_ms or len(found) >= most or most_chars <= 0:
                break
            if payload is not None:
                found[message_id] = payload
                most_chars -= len(str(payload))
        return found

    def failed_before(self) -> dict[MessageId, int]:
        with self.lock:
            return super().failed_before()

    def _retry_of(self, message_id: MessageId) -> Retry:
        return self._retries.get(message_id, Retry())

    # -- what may have killed a worker ---------------------------------------------------------------------------

    def note_suspects(self, suspects: Mapping[MessageId, Retry]) -> None:
        """Notes messages of the micro-batch in work that are to be tried by themselves, once it leaves them out."""
        with self.lock:
            self._of_batch = {*(self._of_batch or ()), *suspects}
            for message_id, retry in suspects.items():
                retry.history = self._retry_of(message_id).history
            self._book.note(suspects)
            self._retries.update(suspects)

    def try_suspects(self, message_ids: Iterable[MessageId]) -> None:
        """The micro-batch does not have them any more."""
        with self.lock:
            self._of_batch = (self._of_batch or set()).difference(message_ids)
