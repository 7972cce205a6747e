"""Plans replays: which messages failed, which attempt is next, and when."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container
from itertools import count
from typing import Any

from redis_acker.message_ids import MessageId
from redis_acker.retries import FailedAttempt, Retry, RetryBook, RetryPolicy
from redis_acker.spout import Message


class Replays:
    """The failed messages of a spout, as they are in its retry book, ordered by the time they are due.

    Changes are made in memory first and written by save() and save_drops(), which go on after an error where they
    stopped.
    """

    def __init__(self, policy: RetryPolicy, clock: Callable[[], int]) -> None:
        self._policy = policy
        self._clock = clock
        self._retries: dict[MessageId, Retry] = {}
        self._unsaved: set[MessageId] = set()
        self._dropped: set[MessageId] = set()
        self._due: list[tuple[int, int, MessageId]] = []
        self._planned: dict[MessageId, int] = {}
        """The entry of each message in _due; others that are there are out of date."""
        self._to_tell: dict[MessageId, None] = {}
        self._told: dict[MessageId, None] = {}
        self._held: dict[MessageId, Message] = {}
        self._ready: dict[MessageId, None] = {}
        self._order = count()

    def open(self, book: RetryBook) -> None:
        """Reads what earlier drivers noted. Requests wait until it is known what is in work."""
        self._book = book
        self._retries = book.load(requests=False)

    def plan_all(self, *, but: set[MessageId]) -> None:
        """Plans the replay of all messages that are known to have failed and are not in work again."""
        for message_id in self._retries:
            if message_id not in but:
                self._enter(message_id)

    def take_requests(self, *, but: Container[MessageId]) -> list[MessageId]:
        """Takes up what others ask for. A message that is in work is not planned, but its attempts are counted on.
        Returns the messages that are planned."""
        planned: list[MessageId] = []
        for request in self._book.requests():
            message_id = request.message_id
            known = self._retries.get(message_id)
            is_news = known is None or known.attempt < request.retry.attempt
            self._book.accept(request, is_news=is_news)
            if is_news:
                self._retries[message_id] = request.retry
                if known is None and message_id not in but:
                    self._enter(message_id)
                    planned.append(message_id)
        return planned

    def is_empty(self) -> bool:
        """Whether no message that failed is in work again or waits for that here: they are done, or with the source."""
        return len(self._retries) == len(self._told)

    def held_count(self) -> int:
        return len(self._held)

    def next_attempt(self, message_id: MessageId) -> int:
        retry = self._retries.get(message_id)
        return retry.attempt + 1 if retry else 1

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
        """Sets the time of the next attempt."""
        retry = self._retries[message_id]
        retry.due_ms = self._clock() + self._policy.pause_ms(retry.attempt)
        self._unsaved.add(message_id)

    def has_unsaved(self) -> bool:
        return bool(self._unsaved or self._dropped)

    def save(self) -> None:
        """Notes durably what was planned, and only then lets its time begin; forgets what was dropped."""
        self.save_drops()
        self._book.note({message_id: self._retries[message_id] for message_id in self._unsaved})
        for message_id in self._unsaved:
            self._enter(message_id)
        self._unsaved.clear()

    def drop(self, message_id: MessageId) -> None:
        """Forgets a message that is complete or buried."""
        if self._retries.pop(message_id, None):
            self._dropped.add(message_id)
            self._unsaved.discard(message_id)
            for places in (self._planned, self._to_tell, self._told, self._held, self._ready):
                places.pop(message_id, None)

    def save_drops(self) -> None:
        """The part of save() that a server without memory allows too."""
        self._book.forget(self._dropped)
        self._dropped.clear()

    def due(self) -> list[MessageId]:
        """Messages of which the source is still to be told that it should hand them out again."""
        while self._due and self._due[0][0] <= self._clock():
            _, order, message_id = heapq.heappop(self._due)
            if self._planned.get(message_id) == order:
                del self._planned[message_id]
                is_here = message_id in self._held or self._retries[message_id].payload is not None
                (self._ready if is_here else self._to_tell)[message_id] = None
        return list(self._to_tell)

    def told(self, message_id: MessageId) -> None:
        """The source knows."""
        self._to_tell.pop(message_id, None)
        self._told[message_id] = None

    def hold_back(self, message: Message) -> bool:
        """Keeps a message that the source hands out before its time. False if its time has come."""
        if message.id is None or message.id not in self._retries:
            return False
        if any(message.id in places for places in (self._planned, self._unsaved, self._ready)):
            self._held[message.id] = message
            return True
        self._to_tell.pop(message.id, None)
        self._told.pop(message.id, None)
        return False

    def take_ready(self, limit: int) -> list[Message]:
        """Messages whose time has come and that need not be asked for: they were held back, or their values are in the
        retry book. Of the latter no more than there is room for."""
        taken: list[Message] = []
        for message_id in list(self._ready):
            message = self._held.pop(message_id, None)
            if message is None and len(taken) < limit:
                message = self._from_payload(message_id)
            if message is not None:
                del self._ready[message_id]
                taken.append(message)
        return taken

    def payload(self, message_id: MessageId) -> list[Any] | None:
        retry = self._retries.get(message_id)
        return retry.payload if retry else None

    def _from_payload(self, message_id: MessageId) -> Message:
        retry = self._retries[message_id]
        return Message(retry.payload or [], message_id, retry.stream)

    def _enter(self, message_id: MessageId) -> None:
        self._planned[message_id] = order = next(self._order)
        heapq.heappush(self._due, (self._retries[message_id].due_ms, order, message_id))
