"""Tokens: the names by which a second delivery of a batch is recognised."""

from __future__ import annotations

import hashlib
import os
import reprlib
import threading
from dataclasses import dataclass
from struct import pack

from redis_acker.errors import BadInput

NAME_BYTES = 8
_LAST_SEQUENCE = (1 << 32) - 1


@dataclass(frozen=True)
class Token:
    """A batch of ack vals: the name of its sender or of itself, and its place among the batches of that name.

    A block remembers of each name the highest sequence it has seen, and ignores that one and those below it.
    """

    name: bytes
    sequence: int

    def __post_init__(self) -> None:
        if len(self.name) != NAME_BYTES or not 0 <= self.sequence <= _LAST_SEQUENCE:
            raise BadInput(
                f"A token has a name of {NAME_BYTES} bytes and a sequence below 2**32, not {self.name!r} and "
                f"{self.sequence!r}: use Token.of() for a name of any length."
            )

    @classmethod
    def of(cls, text: str | bytes) -> Token:
        """The token of a batch that has a name of its own, such as 'run 7, step split'."""
        data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        if not isinstance(data, bytes) or not data:
            raise BadInput(f"A token must be a text that is not empty, not {reprlib.repr(text)}.")
        return cls(hashlib.blake2b(data, digest_size=NAME_BYTES).digest(), 0)

    def packed(self) -> bytes:
        return self.name + pack(">I", self.sequence)


class Sessions(threading.local):
    """Tokens for batches without a name: one random name per thread and process, counted up.

    A thread waits for the answer to a batch before it sends the next, so one sequence number per name is enough. A
    forked process, and a thread whose batch failed with unknown outcome, start under a new name.
    """

    _name: bytes | None = None
    _pid = 0
    _sequence = 0

    def next(self) -> Token:
        if self._name is None or self._pid != os.getpid() or self._sequence == _LAST_SEQUENCE:
            self._name, self._pid, self._sequence = os.urandom(NAME_BYTES), os.getpid(), 0
        self._sequence += 1
        return Token(self._name, self._sequence)

    def renew(self) -> None:
        self._name = None
