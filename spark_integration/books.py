"""What is known of the messages of a spout that failed, across runs: their attempts, and when they are given up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from redis_acker import Acker
from redis_acker.ids import U64Array
from redis_acker.message_ids import MessageId
from redis_acker.outcomes import Failure
from redis_acker.retries import DeadLetter, FailedAttempt, Retry, RetryBook, RetryPolicy
from spark_integration.summary import FailedMessage

_CONSUMER = "run"


class Books:
    """Takes failures out of their stream, once they are noted for a later run or have become dead letters."""

    def __init__(self, acker: Acker, spout: str, policy: RetryPolicy) -> None:
        self._acker, self._spout, self._policy = acker, spout, policy
        self._book = RetryBook(acker, spout)
        self._retries: dict[MessageId, Retry] = self._book.load()

    def failed_before(self) -> dict[MessageId, int]:
        """How many attempts have failed, of messages that are not done."""
        return {message_id: retry.attempt for message_id, retry in self._retries.items()}

    def settle(self, *, not_noted: U64Array | None = None) -> list[FailedMessage]:
        """Notes all failures there are, but for those of some roots."""
        left_out = set() if not_noted is None else set(not_noted.tolist())
        found: list[FailedMessage] = []
        with self._acker.failures(self._spout, consumer=_CONSUMER) as failures:
            while outcomes := failures.read():
                some = [one for outcome in outcomes for one in self._failed(outcome) if one[0].root not in left_out]
                self._note([self._to_note(one, at_ms) for one, at_ms in some])
                found += [one for one, _ in some]
                failures.release(outcomes)
        return found

    def forget(self, completed: Iterable[MessageId]) -> None:
        """Forgets that messages which are complete now had failed."""
        known = [message_id for message_id in completed if self._retries.pop(message_id, None)]
        self._book.forget(known)

    def lost(self, message_id: MessageId, root: int, attempt: int) -> FailedMessage:
        """A message whose root the store knows nothing of."""
        dead = self._is_last(attempt, False)
        error = "the store has lost it: it knows nothing of its root"
        return FailedMessage(message_id, self._spout, root, attempt, "timeout", "", error, dead)

    def note_lost(self, lost: list[FailedMessage], at_ms: int) -> None:
        """Notes messages that the store has lost."""
        self._note([self._to_note(one, at_ms) for one in lost])

    def _is_last(self, attempt: int, fatal: bool) -> bool:
        return fatal or attempt >= self._policy.max_attempts

    def _failed(self, outcome: Failure) -> Iterator[tuple[FailedMessage, int]]:
        rows = zip(outcome.roots.tolist(), outcome.message_ids, outcome.attempts, strict=True)
        for root, message_id, attempt in rows:
            if message_id is not None:
                dead = self._is_last(attempt, outcome.fatal)
                yield (
                    FailedMessage(
                        message_id,
                        self._spout,
                        root,
                        attempt,
                        outcome.reason,
                        outcome.component,
                        outcome.error,
                        dead,
                    ),
                    outcome.at_ms,
                )

    def _to_note(self, failed: FailedMessage, at_ms: int) -> tuple[FailedMessage, Retry]:
        retry = self._retries.setdefault(failed.message_id, Retry())
        if failed.attempt > retry.attempt:
            retry.history.append(FailedAttempt(failed.attempt, failed.reason, failed.step, failed.error, at_ms))
            retry.due_ms = at_ms + self._policy.pause_ms(failed.attempt)
        return failed, retry

    def _note(self, failed: list[tuple[FailedMessage, Retry]]) -> None:
        self._book.note({one.message_id: retry for one, retry in failed if not one.dead})
        dead: list[Any] = [(one, retry) for one, retry in failed if one.dead]
        for one, retry in dead:
            fatal = one.attempt < self._policy.max_attempts
            self._book.bury(DeadLetter(one.message_id, self._spout, list(retry.history), fatal, None))
        self.forget([one.message_id for one, _ in dead])
