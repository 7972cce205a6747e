"""Tells the source what became of its messages."""

from __future__ import annotations

from redis_acker.components.spout import Spout
from redis_acker.driver.life import Life, Messages, State
from redis_acker.retries.book import RetryBook
from redis_acker.store.lease import Lease


class Teller:
    """Tells the source which of its messages are complete or dead."""

    def __init__(self, spout: Spout, messages: Messages, lease: Lease, book: RetryBook | None) -> None:
        """book: None if tracking is off."""
        self._spout, self._messages, self._lease, self._book = spout, messages, lease, book

    def tell(self, life: Life, *, is_dead: bool) -> None:
        self._lease.renew()
        (self._spout.dead if is_dead else self._spout.ack)(life.id)
        life.is_dead = is_dead
        self._messages.move(life, State.TOLD)

    def commit(self) -> None:
        """Makes what the source was told durable, and forgets these messages. The retry book forgets them first: the
        next driver would replay what it finds there."""
        told = list(self._messages.all(State.TOLD))
        if not told:
            return
        if self._book and (noted := [life.id for life in told if life.retry]):
            self._lease.renew()
            self._book.forget(noted)
        self._lease.renew()
        self._spout.commit()
        for life in told:
            life.retry = life.letter = None
            if life.message is None:
                self._messages.move(life, State.FINISHED)
        self._messages.move_all(State.TOLD, None)
