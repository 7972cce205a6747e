"""Replays that others ask a driver for."""

from __future__ import annotations

from collections.abc import Callable

from redis_acker.driver.finishing import Finisher
from redis_acker.driver.life import Messages, State
from redis_acker.retries.book import RetryBook
from redis_acker.store.lease import Lease

REQUESTS_EVERY_MS = 1_000
"""How often a driver checks whether others have asked for replays."""

_ENDING = (State.UNTRACKED, State.DYING, State.TOLD)
"""These are about to be forgotten, with all that is known of them: a request for a replay waits until they are."""


class Requests:
    """Takes requests for replays into the retry book. A message that is known already is not emitted twice; it only
    counts the attempts that the request knows of."""

    def __init__(
        self, finisher: Finisher, messages: Messages, lease: Lease, book: RetryBook, clock: Callable[[], int]
    ) -> None:
        self._finisher, self._messages, self._lease, self._book = finisher, messages, lease, book
        self._clock, self._next_ms = clock, 0

    def accept(self) -> None:
        """Called before the source is asked for messages, since it may hand out one that was requested."""
        if self._clock() < self._next_ms:
            return
        # The next driver must not take a completion from before the request for that of the replay.
        self._finisher.release()
        for request in self._book.requests():
            life = self._messages.life_of(request.message_id)
            if life.state in _ENDING:
                continue
            is_news = life.retry is None or life.retry.attempt < request.retry.attempt
            self._lease.renew()
            self._book.accept(request, is_news=is_news)
            if is_news:
                life.retry = request.retry
                if life.state in (None, State.FINISHED):
                    self._messages.move(life, State.WAITING)
        self._next_ms = self._clock() + REQUESTS_EVERY_MS
