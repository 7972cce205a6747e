"""Anchors: the map root -> edge that a tuple carries, and how it travels to another program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from struct import iter_unpack, pack

from redis_acker.errors import BadInput

_BYTES_EACH = 16
_LIMIT = 1 << 64


class Anchors(Mapping[int, int]):
    """The trees a tuple is in, and its edge in each. Empty: the tuple is in none and nothing waits for it."""

    __slots__ = ("_edges",)

    def __init__(self, edges: Mapping[int, int] | None = None) -> None:
        self._edges = dict(edges or {})
        for root, edge in self._edges.items():
            if not (isinstance(root, int) and isinstance(edge, int) and 0 <= root < _LIMIT and 0 < edge < _LIMIT):
                raise BadInput(f"Anchors map a 64-bit root to a 64-bit edge that is not zero, not {root!r}: {edge!r}.")

    def __getitem__(self, root: int) -> int:
        return self._edges[root]

    def __iter__(self) -> Iterator[int]:
        return iter(self._edges)

    def __len__(self) -> int:
        return len(self._edges)

    def __repr__(self) -> str:
        return f"Anchors({self._edges})"

    def to_bytes(self) -> bytes:
        """16 bytes for each root, for a message header."""
        return b"".join(pack(">QQ", root, edge) for root, edge in self._edges.items())

    @classmethod
    def from_bytes(cls, data: bytes) -> Anchors:
        if not isinstance(data, (bytes, bytearray)) or len(data) % _BYTES_EACH:
            raise BadInput(f"Packed anchors are a multiple of {_BYTES_EACH} bytes, and {data!r} is not.")
        return cls(dict(iter_unpack(">QQ", data)))

    def to_json(self) -> str:
        """Hexadecimal texts, because JSON readers lose integers past 2**53."""
        return json.dumps({f"{root:x}": f"{edge:x}" for root, edge in self._edges.items()})

    @classmethod
    def from_json(cls, text: str) -> Anchors:
        try:
            return cls({int(root, 16): int(edge, 16) for root, edge in json.loads(text).items()})
        except (ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"{text!r} is not the JSON text of anchors ({error}): write it with to_json().") from None
