"""What happens to a message that failed: tried again after a while, or given up."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import asdict, dataclass, field
from typing import Any

from redis_acker.acker import Acker
from redis_acker.errors import BadInput
from redis_acker.message_ids import MessageId
from redis_acker.transport import Command

MAX_PAYLOAD_BYTES = 64_000
"""A dead letter keeps the values of its message if their JSON text is not longer."""


@dataclass(frozen=True)
class RetryPolicy:
    """When a failed message is tried again, and how often."""

    max_attempts: int = 5
    first_ms: int = 1_000
    """Pause before the second attempt; it doubles from attempt to attempt."""
    longest_ms: int = 60_000
    jitter: float = 0.2
    """Share of the pause that is random, so that messages that failed together do not come back together."""

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.first_ms < 0 or self.longest_ms < 0 or not 0 <= self.jitter <= 1:
            raise BadInput(
                f"A retry policy has max_attempts from 1, pauses from 0 ms, jitter from 0 to 1: {self}."
            )

    def pause_ms(self, attempt: int) -> int:
        """The pause after an attempt that failed."""
        pause = min(self.longest_ms, self.first_ms * 2 ** min(attempt - 1, 62))
        return int(pause * (1 - self.jitter * random.random()))


@dataclass(frozen=True)
class FailedAttempt:
    """One attempt at a message."""

    attempt: int
    reason: str
    component: str
    error: str
    at_ms: int


@dataclass
class Retry:
    """A message that failed and is to be tried again."""

    history: list[FailedAttempt] = field(default_factory=list)
    due_ms: int = 0

    @property
    def attempt(self) -> int:
        """The last attempt that failed."""
        return self.history[-1].attempt if self.history else 0

    def to_json(self) -> str:
        return json.dumps({"due_ms": self.due_ms, "history": [asdict(one) for one in self.history]})

    @classmethod
    def from_json(cls, text: bytes) -> Retry:
        data = json.loads(text)
        return cls([FailedAttempt(**one) for one in data["history"]], data["due_ms"])


@dataclass(frozen=True)
class DeadLetter:
    """A message that was given up."""

    message_id: MessageId
    spout: str
    history: list[FailedAttempt]
    fatal: bool
    payload: list[Any] | None
    """The values of the message, if they can be written as JSON."""

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "message_id": encode_id(self.message_id).decode()})

    @classmethod
    def from_json(cls, text: bytes) -> DeadLetter:
        data = json.loads(text)
        data["message_id"] = decode_id(data["message_id"].encode())
        data["history"] = [FailedAttempt(**one) for one in data["history"]]
        return cls(**data)


class RetryBook:
    """The failed messages of one spout, kept in Redis so that attempts are counted across restarts."""

    def __init__(self, acker: Acker, spout: str) -> None:
        number, keys = acker.spout_number(spout), acker.shard_keys[0]
        self._transport = acker.transport
        self._retries, self._dead = keys.retries(number), keys.dead(number)

    def load(self) -> dict[MessageId, Retry]:
        flat = self._transport.run_one(Command(0, ("HGETALL", self._retries)))
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return {decode_id(name): Retry.from_json(value) for name, value in pairs}

    def note(self, message_id: MessageId, retry: Retry) -> None:
        self._transport.run_one(Command(0, ("HSET", self._retries, encode_id(message_id), retry.to_json())))

    def forget(self, message_ids: list[MessageId]) -> None:
        if message_ids:
            self._transport.run_one(Command(0, ("HDEL", self._retries, *map(encode_id, message_ids))))

    def bury(self, letter: DeadLetter) -> None:
        """Stores a dead letter, before its message is forgotten anywhere else."""
        self._transport.run_one(Command(0, ("HSET", self._dead, encode_id(letter.message_id), letter.to_json())))
        self.forget([letter.message_id])

    def dead_letters(self) -> list[DeadLetter]:
        values = self._transport.run_one(Command(0, ("HVALS", self._dead)))
        return [DeadLetter.from_json(value) for value in values]

    def remove_dead(self, message_id: MessageId) -> bool:
        return bool(self._transport.run_one(Command(0, ("HDEL", self._dead, encode_id(message_id)))))


def payload_of(values: Any) -> list[Any] | None:
    """Values as a dead letter keeps them; None if they are no JSON or too long."""
    try:
        text = json.dumps(list(values))
    except (TypeError, ValueError):
        return None
    return json.loads(text) if len(text) <= MAX_PAYLOAD_BYTES else None


def encode_id(message_id: MessageId) -> bytes:
    """A message id and its type as one text."""
    if isinstance(message_id, bytes):
        return b"b:" + base64.b64encode(message_id)
    return f"{'i' if isinstance(message_id, int) else 's'}:{message_id}".encode()


def decode_id(text: bytes) -> MessageId:
    kind, _, rest = text.partition(b":")
    if kind == b"b":
        return base64.b64decode(rest)
    return int(rest) if kind == b"i" else rest.decode()
