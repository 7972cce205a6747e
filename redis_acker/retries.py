"""What happens to a message that failed: tried again after a while, or given up."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from redis_acker.acker import Acker
from redis_acker.errors import BadInput, UnknownSpout
from redis_acker.message_ids import MAX_ATTEMPT, MessageId
from redis_acker.transport import Command, Transport
from redis_acker.tuples import DEFAULT_STREAM

MAX_PAYLOAD_BYTES = 64_000
"""A dead letter keeps the values of its message if their JSON text is not longer."""

_AT_ONCE = 100
"""Messages read or written by one command."""


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
        if not 1 <= self.max_attempts <= MAX_ATTEMPT or min(self.first_ms, self.longest_ms) < 0:
            raise BadInput(f"A retry policy has max_attempts from 1 to {MAX_ATTEMPT} and pauses from 0 ms, not {self}.")
        if not 0 <= self.jitter <= 1:
            raise BadInput(f"The jitter of a retry policy is a share from 0 to 1, not {self.jitter!r}.")

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
    payload: list[Any] | None = None
    """The values of a message that was dead: its source has settled it, so the driver emits it from here."""
    stream: str = DEFAULT_STREAM

    @property
    def attempt(self) -> int:
        """The last attempt that failed."""
        return self.history[-1].attempt if self.history else 0

    def to_json(self) -> str:
        data: dict[str, Any] = {"due_ms": self.due_ms, "history": [asdict(one) for one in self.history]}
        if self.payload is not None:
            data |= {"payload": self.payload, "stream": self.stream}
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: bytes) -> Retry:
        data = json.loads(text)
        history = [FailedAttempt(**one) for one in data["history"]]
        return cls(history, data["due_ms"], data.get("payload"), data.get("stream", DEFAULT_STREAM))


@dataclass(frozen=True)
class Request:
    """A replay that somebody other than the driver asks for."""

    message_id: MessageId
    retry: Retry
    text: bytes
    """As it is stored: another request for the same message may take its place."""


@dataclass(frozen=True)
class DeadLetter:
    """A message that was given up."""

    message_id: MessageId
    spout: str
    history: list[FailedAttempt]
    fatal: bool
    payload: list[Any] | None
    """The values of the message, if they can be written as JSON."""
    stream: str = DEFAULT_STREAM
    """The stream of its spout on which it was emitted."""
    is_readable: bool = True
    """False: the source could not read it. Its payload is then what the source found, and is not emitted."""

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "message_id": encode_id(self.message_id).decode()})

    @classmethod
    def from_json(cls, text: bytes) -> DeadLetter:
        data = json.loads(text)
        data["message_id"] = decode_id(data["message_id"].encode())
        data["history"] = [FailedAttempt(**one) for one in data["history"]]
        return cls(**data)


class RetryBook:
    """The failed messages of one spout, kept in Redis so that attempts are counted across restarts.

    Its driver alone writes into it. Others put requests beside it, which the driver takes into the book.
    """

    def __init__(self, acker: Acker, spout: str) -> None:
        number, keys = acker.spout_number(spout), acker.shard_keys[0]
        self._transport = acker.transport
        self._retries, self._requests, self._dead = keys.retries(number), keys.requests(number), keys.dead(number)

    def load(self, *, requests: bool = True) -> dict[MessageId, Retry]:
        """Every message of the spout whose last attempt failed and that is neither completed nor dead since: with its
        failed attempts, so that the next attempt is retry.attempt + 1. Without requests: as the driver has noted it."""
        pairs = _scan(self._transport, self._retries)
        found = {decode_id(name): Retry.from_json(value) for name, value in pairs}
        for name, value in _scan(self._transport, self._requests) if requests else ():
            message_id, retry = decode_id(name), Retry.from_json(value)
            if message_id not in found or found[message_id].attempt < retry.attempt:
                found[message_id] = retry
        return found

    def note(self, retries: Mapping[MessageId, Retry]) -> None:
        pairs = [(encode_id(message_id), retry.to_json()) for message_id, retry in retries.items()]
        self._transport.run(
            Command(0, ("HSET", self._retries, *(part for pair in some for part in pair))) for some in _parts(pairs)
        )

    def forget(self, message_ids: Iterable[MessageId]) -> None:
        names = [encode_id(message_id) for message_id in message_ids]
        self._transport.run(Command(0, ("HDEL", self._retries, *some)) for some in _parts(names))

    def requests(self) -> Iterator[Request]:
        """Replays that others ask for, a page at a time; one may come twice."""
        for name, value in _scan(self._transport, self._requests):
            yield Request(decode_id(name), Retry.from_json(value), value)

    def accept(self, request: Request, *, is_news: bool) -> None:
        """Takes a request into the book if it is news, and removes it."""
        name, retry = encode_id(request.message_id), request.retry.to_json() if is_news else ""
        keys = [self._retries, self._requests]
        self._transport.run_one(Command.call("accept", 0, keys, [name, request.text, retry]))

    def bury(self, letter: DeadLetter) -> None:
        """Stores a dead letter, in place of an older one of the same message.

        One of the same failure stays: it is by a driver that was killed before it had told the source, and knew more.
        """
        name = encode_id(letter.message_id)
        stored = self._transport.run_one(Command(0, ("HGET", self._dead, name)))
        if stored is None or DeadLetter.from_json(stored).history[-1] != letter.history[-1]:
            self._transport.run_one(Command(0, ("HSET", self._dead, name, letter.to_json())))


class DeadLetters:
    """The dead letters of one spout, or of every spout of a namespace: to be read, counted, replayed and removed."""

    def __init__(self, acker: Acker, *, spout: str | None = None) -> None:
        names = acker.spout_names()
        if spout is not None and spout not in names.values():
            raise UnknownSpout(
                f"Namespace {acker.namespace!r} has no spout {spout!r}: it has {sorted(names.values())}."
            )
        self._transport = acker.transport
        chosen = [(number, name) for number, name in sorted(names.items()) if spout in (None, name)]
        self._keys = {name: acker.shard_keys[0].dead(number) for number, name in chosen}
        self._requests = {name: acker.shard_keys[0].requests(number) for number, name in chosen}

    def __len__(self) -> int:
        return sum(self._transport.run(Command(0, ("HLEN", key)) for key in self._keys.values()))

    def __iter__(self) -> Iterator[DeadLetter]:
        """A page at a time. A letter that is there all the while comes once."""
        for key in self._keys.values():
            seen = set()
            for name, value in _scan(self._transport, key):
                if name not in seen:
                    seen.add(name)
                    yield DeadLetter.from_json(value)

    def find(self, message_id: MessageId) -> list[DeadLetter]:
        """The letters of a message id, at most one of each spout."""
        name = encode_id(message_id)
        found = self._transport.run(Command(0, ("HGET", key, name)) for key in self._keys.values())
        return [DeadLetter.from_json(value) for value in found if value is not None]

    def remove(self, letter: DeadLetter) -> bool:
        """Deletes a letter that has been dealt with. False if it was not there."""
        command = Command(0, ("HDEL", self._keys[letter.spout], encode_id(letter.message_id)))
        return bool(self._transport.run_one(command))

    def replay(self, letter: DeadLetter, *, from_source: bool = False) -> bool:
        """Asks the driver of the spout for one more attempt, after those of the letter, which is removed. False if it
        was not there any more.

        The driver emits the values of the letter. from_source: it asks the source for them, which only a source can
        give that keeps what it has settled.
        """
        if not from_source and (letter.payload is None or not letter.is_readable):
            raise BadInput(
                f"The dead letter of message {letter.message_id!r} has no values that could be emitted: replay it from "
                "the source, if that still has the message."
            )
        retry = Retry(letter.history, 0, None if from_source else letter.payload, letter.stream)
        keys, name = [self._keys[letter.spout], self._requests[letter.spout]], encode_id(letter.message_id)
        stored = self._transport.run_one(Command(0, ("HGET", keys[0], name)))
        if stored is None or DeadLetter.from_json(stored) != letter:
            return False
        return bool(self._transport.run_one(Command.call("revive", 0, keys, [name, stored, retry.to_json()])))


def _scan(transport: Transport, key: str) -> Iterator[tuple[bytes, bytes]]:
    """The fields of a hash, a page at a time; one may come twice."""
    cursor = b"0"
    while True:
        cursor, flat = transport.run_one(Command(0, ("HSCAN", key, cursor, "COUNT", _AT_ONCE)))
        yield from zip(flat[::2], flat[1::2], strict=True)
        if cursor == b"0":
            return


def _parts(items: list[Any]) -> Iterator[list[Any]]:
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))


def payload_of(values: Any) -> list[Any] | None:
    """Values as a dead letter keeps them; None if they are no JSON or too long."""
    try:
        text = json.dumps(list(values))
    except (TypeError, ValueError, RecursionError):
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
