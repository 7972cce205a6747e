"""Topologies: which components there are, and who listens to whom."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from numbers import Number
from typing import Any, Literal

from redis_acker.bolt import Bolt, Component
from redis_acker.errors import BadInput
from redis_acker.spout import Spout
from redis_acker.tuples import DEFAULT_STREAM

Kind = Literal["shuffle", "fields", "all", "global"]


class BadTopology(BadInput):
    """Raised when components do not fit together."""


@dataclass(frozen=True)
class Grouping:
    """How the tuples of one stream of a component are dealt out to the tasks of a listener."""

    source: str
    stream: str
    kind: Kind
    names: tuple[str, ...] = ()

    def dealer(self, fields: Sequence[str], parallelism: int, *, first: int = 0) -> Callable[[Sequence[Any]], range]:
        """A function that says which of the listener's tasks get these values. A shuffle begins with task first."""
        if self.kind == "all":
            return lambda values: range(parallelism)
        if self.kind == "global":
            return lambda values: range(1)
        if self.kind == "shuffle":
            turns = count(first)
            return lambda values: _just(next(turns) % parallelism)
        positions = [fields.index(name) for name in self.names]
        return lambda values: _just(task_of_key([values[position] for position in positions], parallelism))


@dataclass
class Node:
    """A component of a topology."""

    name: str
    component: Component
    parallelism: int
    inputs: list[Grouping] = field(default_factory=list)

    @property
    def is_spout(self) -> bool:
        return isinstance(self.component, Spout)


@dataclass(frozen=True)
class Topology:
    """Components and groupings that have been checked."""

    name: str
    nodes: dict[str, Node]

    def listeners(self, source: str, stream: str) -> list[tuple[Node, Grouping]]:
        """Who listens to a stream of a component."""
        return [
            (node, grouping)
            for node in self.nodes.values()
            for grouping in node.inputs
            if (grouping.source, grouping.stream) == (source, stream)
        ]


class BoltDeclarer:
    """Says what a bolt listens to. Calls can be chained."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def shuffle(self, source: str, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Each tuple goes to one task, in turn."""
        return self._add(source, stream, "shuffle")

    def fields(self, source: str, *names: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Tuples with equal values in these fields go to the same task."""
        return self._add(source, stream, "fields", names)

    def all(self, source: str, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Each tuple goes to every task."""
        return self._add(source, stream, "all")

    def global_(self, source: str, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """All tuples go to the first task."""
        return self._add(source, stream, "global")

    def _add(self, source: str, stream: str, kind: Kind, names: tuple[str, ...] = ()) -> BoltDeclarer:
        self._node.inputs.append(Grouping(source, stream, kind, names))
        return self


class TopologyBuilder:
    """Collects spouts and bolts; build() checks that they fit together."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise BadTopology(f"A topology needs a name, not {name!r}.")
        self._name = name
        self._nodes: dict[str, Node] = {}

    def spout(self, name: str, spout: Spout, *, parallelism: int = 1) -> None:
        """Adds a source. Each task gets a copy."""
        if not isinstance(spout, Spout):
            raise BadTopology(f"Spout {name!r} must be an object of a class derived from Spout, not {spout!r}.")
        self._add(name, spout, parallelism)

    def bolt(self, name: str, bolt: Bolt, *, parallelism: int = 1) -> BoltDeclarer:
        """Adds a bolt; the result says what it listens to. Each task gets a copy."""
        if not isinstance(bolt, Bolt):
            raise BadTopology(f"Bolt {name!r} must be an object of a class derived from Bolt, not {bolt!r}.")
        return BoltDeclarer(self._add(name, bolt, parallelism))

    def _add(self, name: str, component: Component, parallelism: int) -> Node:
        if not isinstance(name, str) or not name:
            raise BadTopology(f"A component needs a name, not {name!r}.")
        if name in self._nodes:
            raise BadTopology(f"There is a component {name!r} already: give each its own name.")
        if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
            raise BadTopology(f"The parallelism of {name!r} must be a whole number from 1, not {parallelism!r}.")
        self._nodes[name] = Node(name, component, parallelism)
        return self._nodes[name]

    def build(self) -> Topology:
        """The topology; raises BadTopology naming the component and the mistake."""
        if not any(node.is_spout for node in self._nodes.values()):
            raise BadTopology(f"Topology {self._name!r} has no spout: add one, nothing else brings messages.")
        for node in self._nodes.values():
            _check_outputs(node)
        for node in self._nodes.values():
            if not node.is_spout and not node.inputs:
                raise BadTopology(f"Bolt {node.name!r} listens to nothing: add shuffle(), fields(), all(), global_().")
            for grouping in node.inputs:
                self._check_input(node, grouping)
        # A declarer that is used later must not change what has been checked.
        return Topology(
            self._name, {name: replace(node, inputs=list(node.inputs)) for name, node in self._nodes.items()}
        )

    def _check_input(self, node: Node, grouping: Grouping) -> None:
        source = self._nodes.get(grouping.source) if isinstance(grouping.source, str) else None
        if source is None:
            raise BadTopology(
                f"Bolt {node.name!r} listens to {grouping.source!r}, which does not exist: there are "
                f"{sorted(self._nodes)}."
            )
        fields = source.component.fields_of(grouping.stream)
        if fields is None:
            raise BadTopology(
                f"Bolt {node.name!r} listens to stream {grouping.stream!r} of {source.name!r}, which has only "
                f"{list(source.component.all_streams())}."
            )
        same = [one for one in node.inputs if (one.source, one.stream) == (grouping.source, grouping.stream)]
        if len(same) > 1:
            raise BadTopology(
                f"Bolt {node.name!r} listens to stream {grouping.stream!r} of {source.name!r} {len(same)} times and "
                "would get every tuple as often: choose one grouping."
            )
        if grouping.kind == "fields" and not grouping.names:
            raise BadTopology(f"Bolt {node.name!r} groups {source.name!r} by fields but names none.")
        for name in grouping.names:
            if name not in fields:
                raise BadTopology(
                    f"Bolt {node.name!r} groups {source.name!r} by field {name!r}, but stream {grouping.stream!r} has "
                    f"the fields {list(fields)}."
                )


def _check_outputs(node: Node) -> None:
    component = node.component
    if DEFAULT_STREAM in component.streams:
        raise BadTopology(f"{node.name!r} declares stream {DEFAULT_STREAM!r} in streams: its place is fields.")
    for stream, fields in component.all_streams().items():
        if not _are_names(fields):
            raise BadTopology(
                f"The fields of stream {stream!r} of {node.name!r} must be a list of different names, such as "
                f"['word', 'count'], not {fields!r}."
            )


def _are_names(fields: Any) -> bool:
    listed = isinstance(fields, Sequence) and not isinstance(fields, str)
    return listed and all(isinstance(one, str) for one in fields) and len(set(fields)) == len(fields)


def _just(task: int) -> range:
    return range(task, task + 1)


def task_of_key(key: Sequence[Any], parallelism: int) -> int:
    """The task for a key of a fields grouping: the same for equal keys, in every process."""
    return zlib.crc32(_stable(key).encode(errors="surrogatepass")) % parallelism


def _stable(value: Any) -> str:
    """A text that is the same for equal values, in every process; hash() of a text is not."""
    if isinstance(value, str):
        return f"{len(value)}:{str.__str__(value)}"
    if isinstance(value, Number):
        return str(hash(value))  # 1, 1.0, True and a numpy 1 are equal, and hash() of numbers is not salted
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_stable, value))})"
    if isinstance(value, (set, frozenset, dict)):
        members = value.items() if isinstance(value, dict) else value
        return f"{{{','.join(sorted(map(_stable, members)))}}}"
    if getattr(type(value), "__repr__", None) is object.__repr__:
        raise BadInput(
            f"Tuples cannot be grouped by {value!r}: group by texts, numbers, or what has a repr of its own."
        )
    return repr(value)
