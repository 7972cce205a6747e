"""Plans replays: which messages failed, which attempt is next, and when."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from redis_acker.message_ids import MAX_ATTEMPT, MessageId
from redis_acker.retries import FailedAttempt, Retry, RetryBook, RetryPolicy
from redis_acker.spout import Message


class Replays:
    """The failed messages of a spout, as they are in its retry book, ordered by the time they are due."""

    def __init__(self, policy: RetryPolicy, clock: Callable[[], int]) -> None:
        self._policy = policy
        self._clock = clock
        self._retries: dict[MessageId, Retry] = {}
        self._due: list[tuple[int, int, MessageId]] = []
        self._held: list[tuple[int, int, Message]] = []
        self._order = count()

    def open(self, book: RetryBook) -> None:
        """Reads what earlier drivers noted."""
        self._book = book
        self._retries = book.load()

    def plan_all(self, *, but: set[MessageId]) -> None:
        """Plans the replay of all messages that are known to have failed and are not in work again."""
        for message_id, retry in self._retries.items():
            if message_id not in but:
                self._plan(message_id, retry)

    def is_empty(self) -> bool:
        return not (self._due or self._held)

    def held_count(self) -> int:
        return len(self._held)

    def next_attempt(self, message_id: MessageId) -> int:
        retry = self._retries.get(message_id)
        return min(MAX_ATTEMPT, retry.attempt + 1) if retry else 1

    def add(self, message_id: MessageId, failed: FailedAttempt) -> list[FailedAttempt] | None:
        """Adds a failed attempt to the history. None if it was noted before, by a driver killed before it said so."""
        retry = self._retries.setdefault(message_id, Retry())
        if failed.attempt <= retry.attempt:
            return None
        retry.history.append(failed)
        return retry.history

    def is_last(self, attempt: int) -> bool:
        return attempt >= self._policy.max_attempts

    def plan(self, message_id: MessageId) -> None:
        """Notes durably that a message is to be replayed, and when."""
        retry = self._retries[message_id]
        retry.due_ms = self._clock() + self._policy.pause_ms(retry.attempt)
        self._book.note(message_id, retry)
        self._plan(message_id, retry)

    def drop(self, message_id: MessageId) -> None:
        """Forgets a message that was buried."""
        self._retries.pop(message_id, None)

    def forget(self, message_ids: list[MessageId]) -> None:
        """Forgets the history of messages that are complete."""
        self._book.forget([one for one in message_ids if self._retries.pop(one, None)])

    def due(self) -> list[MessageId]:
        """Messages the source is to hand out again now."""
        taken = []
        while self._due and self._due[0][0] <= self._clock():
            taken.append(heapq.heappop(self._due)[2])
        return taken

    def hold_back(self, message: Message) -> bool:
        """Keeps a message that the source hands out before its time. False if its time has come."""
        retry = self._retries.get(message.id) if message.id is not None else None
        if retry is None or retry.due_ms <= self._clock():
            return False
        self._due = [one for one in self._due if one[2] != message.id]
        heapq.heapify(self._due)
        heapq.heappush(self._held, (retry.due_ms, next(self._order), message))
        return True

    def take_held(self) -> list[Message]:
        """Messages that were held back and whose time has come."""
        taken = []
        while self._held and self._held[0][0] <= self._clock():
            taken.append(heapq.heappop(self._held)[2])
        return taken

    def _plan(self, message_id: MessageId, retry: Retry) -> None:
        heapq.heappush(self._due, (retry.due_ms, next(self._order), message_id))
