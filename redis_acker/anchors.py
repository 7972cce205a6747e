"""Anchors: the map root -> edge that a tuple carries, and how it travels to another program."""

from __future__ import annotations

import json
import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from struct import iter_unpack, pack
from typing import Any

import numpy as np

from redis_acker.errors import BadInput

_BYTES_EACH = 16
_LIMIT = 1 << 64
_HEX = re.compile(r"[0-9a-fA-F]{1,16}")
_SHOWN = 100
"""Characters of malformed input that an error shows."""


class Anchors(Mapping[int, int]):
    """The trees a tuple is in, and its edge in each. Empty: the tuple is in none and nothing waits for it."""

    __slots__ = ("_edges",)

    def __init__(self, edges: Mapping[int, int] | None = None) -> None:
        self._edges: dict[int, int] = {}
        for root, edge in (edges or {}).items():
            if not (_is_word(root) and _is_word(edge) and edge):
                raise BadInput(
                    f"Anchors map a 64-bit root to a 64-bit edge that is not zero, not {_shown(root)}: {_shown(edge)}."
                )
            self._edges[int(root)] = int(edge)

    @classmethod
    def trusted(cls, edges: dict[int, int]) -> Anchors:
        """Anchors of a dict that nobody else keeps, and of which it is known to be right."""
        anchors = cls.__new__(cls)
        anchors._edges = edges
        return anchors

    def __getitem__(self, root: int) -> int:
        return self._edges[root]

    def __iter__(self) -> Iterator[int]:
        return iter(self._edges)

    def __len__(self) -> int:
        return len(self._edges)

    def items(self) -> ItemsView[int, int]:
        return self._edges.items()

    def __repr__(self) -> str:
        return f"Anchors({self._edges})"

    def to_bytes(self) -> bytes:
        """16 bytes for each root, for a message header."""
        return b"".join(pack(">QQ", root, edge) for root, edge in self._edges.items())

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> Anchors:
        if not isinstance(data, (bytes, bytearray)) or len(data) % _BYTES_EACH:
            raise BadInput(f"Packed anchors are a multiple of {_BYTES_EACH} bytes, and {_shown(data)} is not.")
        return cls(_distinct(iter_unpack(">QQ", data)))

    def to_json(self) -> str:
        """Hexadecimal texts, because JSON readers lose integers past 2**53."""
        return json.dumps({f"{root:x}": f"{edge:x}" for root, edge in self._edges.items()})

    @classmethod
    def from_json(cls, text: str | bytes) -> Anchors:
        try:
            pairs = json.loads(text, object_pairs_hook=tuple)
            if not isinstance(pairs, tuple):
                raise ValueError("it is no object")
            return cls(_distinct((_from_hex(root), _from_hex(edge)) for root, edge in pairs))
        except (ValueError, TypeError, RecursionError) as error:
            raise BadInput(
                f"{_shown(text)} is not the JSON text of anchors ({error}): write it with to_json()."
            ) from None


def _is_word(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 <= int(value) < _LIMIT


def _from_hex(text: Any) -> int:
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        raise ValueError(f"{_shown(text)} is not a hexadecimal number of 64 bits")
    return int(text, 16)


def _distinct(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    edges: dict[int, int] = {}
    for root, edge in pairs:
        if root in edges:
            raise BadInput(f"Root {root} is named twice, and anchors hold one edge for each root.")
        edges[root] = edge
    return edges


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
