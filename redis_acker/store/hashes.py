"""A plain hash of the store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis_acker.errors import Unreadable
from redis_acker.store.transport import Argument, Command, Transport

FIELDS_AT_ONCE = 100
"""Fields read or written by one command."""

_NUMBER, _MOST_DIGITS = re.compile(rb"-?[0-9]+"), 20


@dataclass(frozen=True)
class StoredHash:
    """A handle for one key: it reads and writes, and holds nothing itself."""

    transport: Transport
    shard: int
    key: str

    def items(self, at_once: int = FIELDS_AT_ONCE) -> Iterator[tuple[bytes, bytes]]:
        """Every field and its value, a page at a time. A field that is there throughout comes at least once."""
        for page in self.pages(at_once):
            yield from page

    def pages(self, at_once: int = FIELDS_AT_ONCE) -> Iterator[list[tuple[bytes, bytes]]]:
        cursor = b"0"
        while True:
            cursor, page = self.page(cursor, at_once)
            yield page
            if cursor == b"0":
                return

    def page(self, cursor: bytes, at_once: int) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """About so many fields with their values from a cursor on, and the next cursor: b"0" after the last."""
        cursor, flat = self._run("HSCAN", self.key, cursor, "COUNT", at_once)
        return cursor, list(zip(flat[::2], flat[1::2], strict=True))

    def get(self, field: Argument) -> bytes | None:
        return self.get_all([field])[0]

    def get_all(self, fields: Sequence[Argument]) -> list[bytes | None]:
        found: list[bytes | None] = self._run("HMGET", self.key, *fields)
        return found

    def put(self, pairs: Mapping[str, str] | Mapping[str, bytes]) -> None:
        items = list(pairs.items())
        self.transport.run(
            Command(self.shard, ("HSET", self.key, *(part for pair in some for part in pair))) for some in _parts(items)
        )

    def remove(self, fields: Iterable[Argument]) -> int:
        """Returns how many of the fields were there."""
        commands = (Command(self.shard, ("HDEL", self.key, *some)) for some in _parts(list(fields)))
        return sum(self.transport.run(commands))

    def increment(self, field: str) -> int:
        return int(self._run("HINCRBY", self.key, field, 1))

    def delete(self) -> None:
        self._run("DEL", self.key)

    def expire(self, after_ms: int) -> None:
        self._run("PEXPIRE", self.key, after_ms)

    def exists(self) -> bool:
        return bool(self._run("EXISTS", self.key))

    def __len__(self) -> int:
        return int(self._run("HLEN", self.key))

    def __bool__(self) -> bool:
        return True  # an empty hash is still a handle

    def _run(self, *args: Argument) -> Any:
        return self.transport.run_one(Command(self.shard, args))


def _parts(items: list[Any]) -> Iterator[list[Any]]:
    return (items[at : at + FIELDS_AT_ONCE] for at in range(0, len(items), FIELDS_AT_ONCE))


def number_of(value: bytes | None) -> int:
    """A number as the store keeps it; 0 where there is none, or what another program put there is not one."""
    return int(value) if value is not None and is_number(value) else 0


def is_number(value: bytes) -> bool:
    """Whether it is a number as the store keeps it. Python refuses to read one of thousands of digits."""
    return len(value) <= _MOST_DIGITS and bool(_NUMBER.fullmatch(value))


def json_of(text: bytes) -> Any:
    """What a text says. Raises Unreadable for what is no JSON, or a number or nesting that nobody writes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable(f"{len(text)} bytes are not JSON") from None
