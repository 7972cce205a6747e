"""Failures root by root, as they leave the store and come back to be replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from redis_acker.retries.book import FailedAttempt
from redis_acker.store.message_ids import MessageId
from redis_acker.store.streams import Failure


@dataclass(frozen=True)
class FailedRoot:
    """One root that failed, and everything a replay needs."""

    spout: str
    message_id: MessageId | None
    root: int
    attempt: int
    reason: str
    """'failed' or 'timeout'."""
    component: str
    error: str
    fatal: bool
    age_ms: int
    """From its init to its failure."""
    at_ms: int
    """When it failed, by the server's clock."""
    shard: int
    entry: str
    """Its entry in the failure stream."""
    history: str = ""
    """Of the shard, as the entry has it."""

    @classmethod
    def of(cls, spout: str, failure: Failure) -> Iterator[FailedRoot]:
        """The roots of a failure, one by one."""
        each = zip(failure.roots.tolist(), failure.message_ids, failure.attempts, failure.ages_ms, strict=True)
        for root, message_id, attempt, age_ms in each:
            why = (failure.reason, failure.component, failure.error, failure.fatal)
            where = (failure.at_ms, failure.shard, failure.entry, failure.history)
            yield cls(spout, message_id, root, attempt, *why, age_ms, *where)

    def as_attempt(self) -> FailedAttempt:
        return FailedAttempt(self.attempt, self.reason, self.component, self.error, self.at_ms)
