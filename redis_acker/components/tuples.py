"""Tuples: what travels between components, and the anchors that say which trees of work they are in."""

from __future__ import annotations

import json
import os
import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from redis_acker.components.tracing import SpanInWork, from_traceparent, to_traceparent
from redis_acker.errors import BadInput
from redis_acker.store.ids import new_edges
from redis_acker.store.packed import ANCHOR_BYTES, TRACE_BYTES, pack_anchors, split_anchors, unpack_anchors

DEFAULT_STREAM = "default"
SYSTEM = "__system"
"""In place of a component: the runner itself."""

_TRACEPARENT = "traceparent"
"""In JSON: the context of a trace, as in the header that W3C has named."""
_LIMIT = 1 << 64
_HEX = re.compile(r"[0-9a-fA-F]{1,16}")
_EDGES_AT_ONCE = 1024
_SHOWN = 100
"""Characters of malformed input that an error shows."""
_VALUES_SHOWN = 200
"""Characters of a tuple's values that a log line or an error shows."""


class Anchors(Mapping[int, int]):
    """The map root -> edge that a tuple carries: the trees it is in, and its edge in each. Without any, it is outside
    every tree and nothing waits for it."""

    __slots__ = ("edges",)

    trace: bytes = b""
    """The context of the span that what has these anchors belongs to, if the message is traced; else nothing."""

    def __init__(self, edges: Mapping[int, int] | None = None) -> None:
        self.edges: dict[int, int] = {}
        """The map itself, for those who look at it for every tuple. Not to be changed."""
        for root, edge in (edges or {}).items():
            if not (_is_word(root) and _is_word(edge) and edge):
                raise BadInput(
                    f"Anchors map a 64-bit root to a 64-bit edge that is not zero, not {_shown(root)}: {_shown(edge)}."
                )
            self.edges[int(root)] = int(edge)

    @classmethod
    def trusted(cls, edges: dict[int, int]) -> Anchors:
        """Wraps a dict that is known to be valid and that the caller gives away."""
        anchors = cls.__new__(cls)
        anchors.edges = edges
        return anchors

    @classmethod
    def traced(cls, edges: Mapping[int, int], trace: bytes) -> Anchors:
        """Anchors that continue the trace of others, by their `trace`; the same as Anchors(edges) if that is empty."""
        return TracedAnchors(edges, trace) if trace else cls(edges)

    def span(self, name: str) -> SpanInWork:
        """For `with`: what happens inside is a span of the message's trace, which an exception marks as failed. Nothing
        happens if the message is not traced, or the program does not use OpenTelemetry."""
        return SpanInWork(self, name)

    def __getitem__(self, root: int) -> int:
        return self.edges[root]

    def __iter__(self) -> Iterator[int]:
        return iter(self.edges)

    def __len__(self) -> int:
        return len(self.edges)

    def items(self) -> ItemsView[int, int]:
        return self.edges.items()

    def __repr__(self) -> str:
        return f"Anchors({self.edges})"

    def to_bytes(self) -> bytes:
        """16 bytes for each root, for a message header; 25 more if the message is traced."""
        return pack_anchors(self.edges) + self.trace

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> Anchors:
        packed, trace = split_anchors(data) if isinstance(data, (bytes, bytearray)) else (b"-", b"")
        if len(packed) % ANCHOR_BYTES or (trace and not packed):
            raise BadInput(f"Packed anchors are a multiple of {ANCHOR_BYTES} bytes, and {_shown(data)} is not.")
        return cls.traced(_distinct(unpack_anchors(packed)), trace)

    def to_json(self) -> str:
        """Hexadecimal strings, because JSON readers lose integers past 2**53. Also `traceparent` if the message is
        traced."""
        fields = {f"{root:x}": f"{edge:x}" for root, edge in self.edges.items()}
        return json.dumps({**fields, _TRACEPARENT: to_traceparent(self.trace)} if self.trace else fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Anchors:
        try:
            pairs = json.loads(text, object_pairs_hook=tuple)
            if not isinstance(pairs, tuple):
                raise ValueError("it is not an object")
            traces = [from_traceparent(text) for name, text in pairs if name == _TRACEPARENT]
            edges = _distinct((_from_hex(root), _from_hex(edge)) for root, edge in pairs if root != _TRACEPARENT)
            if len(traces) > bool(edges):
                raise ValueError("it has more traces than anchors need")
            return cls.traced(edges, b"".join(traces))
        except (ValueError, TypeError, RecursionError) as error:
            raise BadInput(f"{_shown(text)} is not the JSON of anchors ({error}): write it with to_json().") from None


class TracedAnchors(Anchors):
    """Those of a message that is traced."""

    __slots__ = ("open_span", "trace")

    def __init__(self, edges: Mapping[int, int], trace: bytes) -> None:
        super().__init__(edges)
        if len(trace) != TRACE_BYTES:
            raise BadInput(f"The context of a trace has {TRACE_BYTES} bytes, and {_shown(trace)} is not: use `trace`.")
        self.trace = trace
        self.open_span: Any = None
        """The span in which they are worked on."""

    def __reduce__(self) -> tuple[Any, ...]:
        return TracedAnchors, (self.edges, self.trace)


NO_ANCHORS = Anchors()
"""Those of a tuple outside every tree."""


class Tuple:
    """Values with the names of their fields, the component they come from, and the trees they are in."""

    __slots__ = (
        "anchors",
        "child_edges",
        "component",
        "extended_s",
        "fields",
        "outcome",
        "since_s",
        "stream",
        "values",
    )

    def __init__(
        self,
        values: Sequence[Any],
        *,
        fields: Sequence[str] = (),
        anchors: Anchors = NO_ANCHORS,
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
        self.since_s = 0.0
        """When it came to where it is, a queue or the hands of a bolt, by the monotonic clock of its runner."""
        self.extended_s = 0.0
        """When its bolt last extended it, by the same clock."""

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, int):
            return self.values[key]
        try:
            return self.values[self.fields.index(key)]
        except ValueError:
            raise BadInput(f"A tuple of {self.component!r} has the fields {self.fields}, not {key!r}.") from None

    @property
    def is_tick(self) -> bool:
        """Whether it only says that time has passed: it has no values and is in no tree."""
        return self.component == SYSTEM

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        try:
            shown = _cut(str(self.values), _VALUES_SHOWN)
        except Exception:  # the repr of a value is broken, and a log line must not fail for that
            shown = "values that cannot be printed"
        return f"Tuple({shown}, from {self.component!r}, {len(self.anchors)} roots)"


class Edges:
    """Draws random edge ids, many at a time. Threads may share it, and a forked process draws its own."""

    _drawn: ClassVar[list[int]] = []

    def __call__(self) -> int:
        while True:
            try:
                return self._drawn.pop()
            except IndexError:
                self._drawn.extend(new_edges(_EDGES_AT_ONCE).tolist())


if hasattr(os, "register_at_fork"):  # everywhere but on Windows, which has no fork
    os.register_at_fork(after_in_child=Edges._drawn.clear)


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
            raise BadInput(f"Root {root} appears twice, but anchors hold one edge for each root.")
        edges[root] = edge
    return edges


def _shown(value: Any) -> str:
    return _cut(repr(value), _SHOWN)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[:size]}..."
