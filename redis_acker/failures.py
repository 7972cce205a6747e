"""Failures on their way out of the store: root by root, and with the drain that has taken them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass

from redis_acker.message_ids import MessageId
from redis_acker.outcomes import Failure, parse_entry
from redis_acker.owners import Owner
from redis_acker.retries import FailedAttempt


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
    """Of the failure stream."""

    @classmethod
    def of(cls, spout: str, failure: Failure) -> Iterator[FailedRoot]:
        """The roots of a failure, one by one."""
        roots = failure.roots.tolist()
        for root, message_id, attempt, age_ms in zip(
            roots, failure.message_ids, failure.attempts, failure.ages_ms, strict=True
        ):
            yield cls(
                spout,
                message_id,
                root,
                attempt,
                failure.reason,
                failure.component,
                failure.error,
                failure.fatal,
                age_ms,
                failure.at_ms,
                failure.shard,
                failure.entry,
            )

    def as_attempt(self) -> FailedAttempt:
        return FailedAttempt(self.attempt, self.reason, self.component, self.error, self.at_ms)


@dataclass(frozen=True)
class TakenFailure:
    """A failure that a drain has taken."""

    spout: str
    failure: Failure
    owner: Owner
    fields: dict[bytes, bytes]
    note: bytes
    """As it is stored."""

    @classmethod
    def of(cls, spout: str, shard: int, entry: str, fields: dict[bytes, bytes], owner: Owner) -> TakenFailure:
        """fields: of the stream entry, as far as it is taken."""
        packed = {name.decode(): base64.b64encode(value).decode() for name, value in fields.items()}
        note = json.dumps({"owner": owner.to_dict(), "fields": packed}).encode()
        return cls.read(spout, shard, entry, note)

    @classmethod
    def read(cls, spout: str, shard: int, entry: str, note: bytes) -> TakenFailure:
        data = json.loads(note)
        fields = {name.encode(): base64.b64decode(value) for name, value in data["fields"].items()}
        failure = parse_entry(shard, entry.encode(), [part for pair in fields.items() for part in pair])
        assert isinstance(failure, Failure)
        return cls(spout, failure, Owner(**data["owner"]), fields, note)

    def roots(self) -> Iterator[FailedRoot]:
        return FailedRoot.of(self.spout, self.failure)
