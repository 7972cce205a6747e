"""Hooks, counters and log lines for those who watch a spout."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from redis_acker.components.component import ComponentCounters
from redis_acker.components.spout import Message
from redis_acker.errors import MemoryFull, escaped, traceback_of
from redis_acker.retries.book import DeadLetter
from redis_acker.store.message_ids import MessageId

log = logging.getLogger(__name__)


class Observer:
    """Is told what happens to messages. Override what is of interest; it is called from the driver's thread."""

    def on_complete(self, message_id: MessageId, latency_ms: int) -> None:
        """The whole tree of a message is done."""

    def on_fail(self, message_id: MessageId, reason: str) -> None:
        """An attempt at a message failed."""

    def on_dead(self, letter: DeadLetter) -> None:
        """A message was given up."""


class Reporter:
    """Says what happens to the messages of a spout: counts it, logs it, and calls the observer."""

    def __init__(self, spout: str, observer: Observer) -> None:
        self.counters = ComponentCounters()
        self._spout, self._observer = spout, observer
        # Asked for each message, and as a rule nobody listens.
        self._tells_completions = getattr(observer.on_complete, "__func__", None) is not Observer.on_complete
        self._has_waited_for_room = self._has_repeated = self._has_said_unproven = False
        self.is_short_of_memory = False
        """Whether the log says so. Reset by whoever finds that there is memory again."""

    def completed(self, message_id: MessageId, latency_ms: int) -> None:
        self.counters.acked += 1
        if self._tells_completions:
            self._notify(self._observer.on_complete, message_id, latency_ms)

    def failed(self, message_id: MessageId, reason: str) -> None:
        self.counters.failed += 1
        self._notify(self._observer.on_fail, message_id, reason)

    def dead(self, letter: DeadLetter) -> None:
        self.counters.dead += 1
        last = letter.history[-1]
        where = f" in {last.component}" if last.component else ""
        text = escaped(f"{last.reason}{where}: {last.error}")
        holds = "holds its values" if letter.payload is not None else "holds its id but not its values"
        log.error(
            "Message %r of spout %s is dead after %d attempts: %s. Its dead letter %s: see `redis-acker dead list`.",
            letter.message_id,
            self._spout,
            last.attempt,
            text.rstrip("."),
            holds,
        )
        self._notify(self._observer.on_dead, letter)

    def unreadable(self, message: Message) -> None:
        """A message that is not tracked could not be read, or a grouping cannot deal it out."""
        log.error("Spout %s cannot emit message %r: %s", self._spout, message.id, escaped(str(message.error)))

    def repeated(self, message: Message) -> None:
        """The source handed out a message whose id is that of an unfinished one."""
        self.counters.repeated += 1
        if not self._has_repeated:
            self._has_repeated = True
            log.warning(
                "Spout %s handed out message %r while one with that id is unfinished, so it is not emitted: give each "
                "message an id of its own. The counter `repeated` counts them from here on.",
                self._spout,
                message.id,
            )

    def repeats_unproven(self) -> None:
        """A message whose server may have lost what was acked is emitted again."""
        if not self._has_said_unproven:
            self._has_said_unproven = True
            log.warning(
                "A server was restarted or replaced while messages of spout %s were pending, and may have lost acks: "
                "those that time out are emitted again, which does not count as an attempt.",
                self._spout,
            )

    def waits_for_room(self, max_pending: int) -> None:
        self.counters.waited += 1
        if not self._has_waited_for_room:
            self._has_waited_for_room = True
            log.warning("Spout %s waits: max_pending=%d messages are unfinished.", self._spout, max_pending)

    def waits_for_memory(self, error: MemoryFull) -> None:
        self.counters.waited += 1
        if not self.is_short_of_memory:
            self.is_short_of_memory = True
            log.warning("Spout %s waits: %s", self._spout, error)

    def _notify(self, hook: Callable[..., None], *args: Any) -> None:
        try:
            hook(*args)
        except Exception as error:
            log.error("An observer of spout %s failed; its driver goes on.\n%s", self._spout, traceback_of(error))
