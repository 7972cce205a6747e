"""Tuples: what travels between components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis_acker.anchors import Anchors
from redis_acker.errors import BadInput

DEFAULT_STREAM = "default"

_NO_ANCHORS = Anchors()
_SHOWN = 200
"""Characters of the values that a log line or an error shows."""


class Tuple:
    """Values with the names of their fields, where they come from, and the trees they are in."""

    __slots__ = ("anchors", "child_edges", "component", "fields", "outcome", "stream", "values")

    def __init__(
        self,
        values: Sequence[Any],
        *,
        fields: Sequence[str] = (),
        anchors: Anchors = _NO_ANCHORS,
        component: str = "",
        stream: str = DEFAULT_STREAM,
    ) -> None:
        self.values = tuple(values)
        self.fields = tuple(fields)
        self.anchors = anchors
        self.component = component
        """The component that emitted it."""
        self.stream = stream
        self.child_edges = 0
        """XOR of the edges of its children so far."""
        self.outcome = ""
        """Empty, or how it was finished: acked, failed."""

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, int):
            return self.values[key]
        try:
            return self.values[self.fields.index(key)]
        except ValueError:
            raise BadInput(f"A tuple of {self.component!r} has the fields {self.fields}, not {key!r}.") from None

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        values = str(self.values)
        shown = values if len(values) <= _SHOWN else f"{values[:_SHOWN]}..."
        return f"Tuple({shown}, from {self.component!r}, {len(self.anchors)} roots)"
