"""The spouts of a namespace, by name and by number, and what keeps both when the servers lose their data."""

from __future__ import annotations

import logging
import reprlib
import zlib
from collections.abc import Callable
from typing import TypeVar

from redis_acker.errors import BadInput, StoreLost, UnknownSpout
from redis_acker.store.connect import Servers
from redis_acker.store.keys import MAX_SPOUT
from redis_acker.store.namespace import store_settings
from redis_acker.store.shards import Shards

T = TypeVar("T")

log = logging.getLogger(__name__)


class Spouts:
    """Asks the store once for each number: a spout keeps its own for ever."""

    def __init__(self, shards: Shards, servers: Servers, namespace: str) -> None:
        self._shards, self._servers, self._namespace = shards, servers, namespace
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a spout, assigned at first use."""
        if name not in self._numbers:
            self._numbers[name] = self._ask_number(name)
        return self._numbers[name]

    def known(self, only: str | None = None) -> dict[str, int]:
        """The numbers of all spouts, or of one. Raises UnknownSpout where there is none of that name."""
        numbers = {name: number for number, name in sorted(self._shards.spouts().items())}
        if only is None:
            return numbers
        if only not in numbers:
            raise UnknownSpout(f"Namespace {self._namespace!r} has no spout {only!r}: it has {sorted(numbers)}.")
        return {only: numbers[only]}

    def again_if_lost(self, send: Callable[[], T]) -> T:
        """Sends. If the server has lost its data, stores the settings and the spouts again and sends once more."""
        try:
            return send()
        except StoreLost as error:
            log.error("%s The roots that were pending there are lost.", error)
        store_settings(self._shards, self._servers, self._namespace, create=True)
        known, self._numbers = self._numbers, {}
        for name, number in known.items():
            if self.number(name) != number:
                raise StoreLost(f"The server has lost its data, and spout {name!r} has a new number: open a new Acker.")
        return send()

    def _ask_number(self, name: str) -> int:
        if not 0 < len(_encoded(name)) <= 255:
            raise BadInput(f"A spout's name is a text of 1 to 255 bytes, not {reprlib.repr(name)}.")
        number = self._shards.spout(name, _first_choice(name), MAX_SPOUT)
        if number == 0:
            raise BadInput(
                f"Namespace {self._namespace!r} has {MAX_SPOUT} spouts already, so {name!r} gets no number: use the "
                "same spout names in every run."
            )
        return number


def _encoded(name: object) -> bytes:
    """The bytes of a name; empty for what is not text, or cannot be encoded in UTF-8."""
    try:
        return name.encode() if isinstance(name, str) else b""
    except UnicodeEncodeError:
        return b""


def _first_choice(name: str) -> int:
    """The number that a spout gets unless another has it."""
    return zlib.crc32(name.encode()) % MAX_SPOUT + 1
