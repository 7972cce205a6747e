"""What is known of a message that failed, and the book that keeps it in Redis."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import NoneType
from typing import Any

from redis_acker.components.tuples import DEFAULT_STREAM
from redis_acker.errors import BadInput, Unreadable
from redis_acker.store.acker import Acker
from redis_acker.store.hashes import json_of
from redis_acker.store.message_ids import MAX_ATTEMPT, MessageId, check_message_ids, id_from_text, id_to_text
from redis_acker.store.quarantine import Quarantine

MAX_PAYLOAD_BYTES = 64_000
"""A dead letter keeps the values of its message if their JSON is no longer than this."""

LETTERS_AT_ONCE = 100
MOST_LETTER_BYTES = 256_000
"""Dead letters that are stored by one call: so many, or as many as have this many bytes."""


# -- what is known ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailedAttempt:
    """One attempt at a message, and why it failed."""

    attempt: int
    reason: str
    component: str
    error: str
    at_ms: int


@dataclass(frozen=True)
class Suspicion:
    """A message was in flight when its process died: it may have killed it."""

    together: int
    """Most suspects that may be in flight together with it, itself included, when it is tried again."""
    root: int
    """The root that was in flight then."""
    payload: list[Any] | None = None
    """The values of one that is in flight alone: if it kills its process, nobody else has them for its dead letter."""
    stream: str = DEFAULT_STREAM


@dataclass
class Retry:
    """A message that failed, or whose driver ended, and will be tried again."""

    history: list[FailedAttempt] = field(default_factory=list)
    due_ms: int = 0
    payload: list[Any] | None = None
    """The values of a message that was dead: its source has finished with it, so the driver emits these."""
    stream: str = DEFAULT_STREAM
    suspicion: Suspicion | None = None

    @property
    def attempt(self) -> int:
        """The last attempt that failed; 0 if none did."""
        return self.history[-1].attempt if self.history else 0

    def to_json(self) -> str:
        data: dict[str, Any] = {"due_ms": self.due_ms, "history": [vars(one) for one in self.history]}
        if self.payload is not None:
            data |= {"payload": self.payload, "stream": self.stream}
        if self.suspicion is not None:
            data["suspicion"] = asdict(self.suspicion)
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: bytes) -> Retry:
        """Raises Unreadable for what no book holds."""
        data = _parsed(text, {"due_ms": int})
        stream = data.get("stream", DEFAULT_STREAM)
        if not isinstance(stream, str):
            raise Unreadable("its stream is not a text")
        return cls(data["history"], data["due_ms"], data.get("payload"), stream, _suspicion(data.get("suspicion")))


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
    """The stream of the spout on which it was emitted."""
    is_readable: bool = True
    """False: the source could not read it. Its payload is then what the source found, and cannot be emitted."""

    def to_json(self) -> str:
        history = [vars(one) for one in self.history]
        return json.dumps({**vars(self), "message_id": id_to_text(self.message_id), "history": history})

    @classmethod
    def from_json(cls, spout: str, name: bytes, text: bytes) -> DeadLetter:
        """The letter that a spout keeps under a name. Raises Unreadable for what is none."""
        data = cls._checked(spout, name, text)
        data["message_id"] = read_name(name)
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})

    @classmethod
    def last_attempt(cls, spout: str, name: bytes, text: bytes) -> FailedAttempt:
        """That of from_json(), for half of the time."""
        last: FailedAttempt = cls._checked(spout, name, text)["history"][-1]
        return last

    @classmethod
    def _checked(cls, spout: str, name: bytes, text: bytes) -> dict[str, Any]:
        data = _parsed(text, _LETTER)
        if not data["history"]:
            raise Unreadable("it has no history")
        if data["spout"] != spout or data["message_id"].encode(errors="replace") != name:
            raise Unreadable("it is the letter of another message")
        return data


def _suspicion(data: Any) -> Suspicion | None:
    if data is None:
        return None
    found = _checked(data, {"together": int, "root": int, "stream": str})
    if found["together"] < 1:
        raise Unreadable("it is suspected together with nobody, not even itself")
    return Suspicion(found["together"], found["root"], found.get("payload"), found["stream"])


_LETTER = {"message_id": str, "spout": str, "fatal": bool, "stream": str, "is_readable": bool}
_ATTEMPT = {"attempt": int, "reason": str, "component": str, "error": str, "at_ms": int}


def _parsed(text: bytes, kinds: dict[str, type]) -> dict[str, Any]:
    """A stored object that has these fields, and a history. Raises Unreadable for anything else."""
    data = _checked(json_of(text), {"history": list, **kinds})
    checked = (_checked(one, _ATTEMPT) for one in data["history"])
    history = [FailedAttempt(*map(one.__getitem__, _ATTEMPT)) for one in checked]
    if any(not 0 <= one.attempt <= MAX_ATTEMPT for one in history):
        raise Unreadable(f"an attempt is not from 0 to {MAX_ATTEMPT}")
    return {**data, "history": history}


def _checked(data: Any, kinds: dict[str, type]) -> dict[str, Any]:
    """Raises Unreadable for what is no object with these fields, or has a payload that is not a list."""
    if not isinstance(data, dict) or [*map(type, map(data.get, kinds))] != [*kinds.values()]:
        raise Unreadable(f"it lacks {', '.join(kinds)}, or one has another type")
    if any(kind is int and not 0 <= data[name] < 1 << 64 for name, kind in kinds.items()):
        raise Unreadable("a number in it is not from 0 to 2**64")
    if not isinstance(data.get("payload"), (list, NoneType)):
        raise Unreadable("its payload is not a list")
    return data


def read_name(name: bytes) -> MessageId:
    """The message id that a field is named by. Raises Unreadable for what is none."""
    try:
        message_id = id_from_text(name.decode())
        check_message_ids([message_id], 1)
    except (UnicodeDecodeError, BadInput):
        raise Unreadable("its name is not a message id") from None
    if id_to_text(message_id).encode() != name:
        raise Unreadable("its name is not a message id as it is written")
    return message_id


def payload_of(values: Any) -> list[Any] | None:
    """Values as a dead letter keeps them; None if they cannot be JSON, or are too long."""
    try:
        listed = list(values)
        text = json.dumps(listed)
    except (TypeError, ValueError, RecursionError):
        return None
    if len(text) > MAX_PAYLOAD_BYTES:
        return None
    # As a rule they are what they would be read as, and need not be read.
    return listed if all(type(one) in _PLAIN for one in listed) else json.loads(text)


_PLAIN = frozenset({str, int, float, bool, type(None)})


# -- where it is kept -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A replay that somebody else asks the driver for."""

    message_id: MessageId
    retry: Retry
    text: bytes
    """As it is stored: another request for the same message may have replaced it since."""

    @classmethod
    def read(cls, name: bytes, text: bytes) -> Request:
        return cls(read_name(name), Retry.from_json(text), text)


class RetryBook:
    """The failed messages of one spout, kept in Redis so that attempts are counted across restarts.

    Only its driver writes to it. Others put requests beside it, and the driver takes them into the book.
    """

    def __init__(self, acker: Acker, spout: str) -> None:
        self._shards, self._number = acker.shards, acker.spout_number(spout)
        self._retries = self._shards.retries(self._number)
        self._requests = self._shards.requests(self._number)
        self._dead = self._shards.dead(self._number)
        self._spout, self._quarantine = spout, Quarantine(acker.shards)

    def load(self, *, requests: bool = True) -> dict[MessageId, Retry]:
        """Every message of the spout whose last attempt failed, or whose driver died, and that is neither complete nor
        dead since. Its next attempt is retry.attempt + 1. requests=False: only what the driver itself has noted."""
        found = {one.message_id: one.retry for one in self._quarantine.readable(self._retries, Request.read)}
        for one in self.requests() if requests else ():
            if one.message_id not in found or found[one.message_id].attempt < one.retry.attempt:
                found[one.message_id] = one.retry
        return found

    def dead_ids(self) -> Iterator[MessageId]:
        """The messages of the spout that are dead letters."""
        return self._quarantine.readable(self._dead, lambda name, _: read_name(name))

    def note(self, retries: Mapping[MessageId, Retry]) -> None:
        self._retries.put({id_to_text(message_id): retry.to_json() for message_id, retry in retries.items()})

    def forget(self, message_ids: Iterable[MessageId]) -> None:
        self._retries.remove(map(id_to_text, message_ids))

    def requests(self) -> Iterator[Request]:
        """The replays that others ask for, a page at a time; one may come twice."""
        return self._quarantine.readable(self._requests, Request.read)

    def accept(self, request: Request, *, is_news: bool) -> None:
        """Removes a request, and takes it into the book if it is news."""
        retry = request.retry.to_json() if is_news else ""
        self._shards.accept(self._number, id_to_text(request.message_id), request.text, retry)

    def bury(self, *letters: DeadLetter) -> None:
        """Stores dead letters of different messages, each in place of an older one of the same message.

        A letter of the same failure stays: its driver knew more, and was killed before it told the source.
        """
        for at in range(0, len(letters), LETTERS_AT_ONCE):
            named = {id_to_text(letter.message_id): letter for letter in letters[at : at + LETTERS_AT_ONCE]}
            stored = zip(named.items(), self._dead.get_all(list(named)), strict=True)
            new = ((name, letter.to_json()) for (name, letter), text in stored if not self._holds(name, letter, text))
            self._shards.bury(self._number, _parts(new))

    def _holds(self, name: str, letter: DeadLetter, stored: bytes | None) -> bool:
        """Whether what is stored is a letter of the same failure. What cannot be read makes room."""
        try:
            if stored is None:
                return False
            return DeadLetter.last_attempt(self._spout, name.encode(), stored) == letter.history[-1]
        except Unreadable as error:
            self._quarantine.set_aside_field(self._dead, name.encode(), stored or b"", error)
            return False


def _parts(letters: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Letters in parts for one script call each, which must not keep the server for long."""
    part: list[tuple[str, str]] = []
    size = 0
    for letter in letters:
        part.append(letter)
        size += len(letter[1])
        if size >= MOST_LETTER_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
