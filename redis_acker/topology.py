"""Topologies: which components there are, and who listens to whom."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
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

    def positions(self, fields: Sequence[str]) -> list[int]:
        return [fields.index(name) for name in self.names]


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
            if not node.is_spout and not node.inputs:
                raise BadTopology(
                    f"Bolt {node.name!r} listens to nothing: add shuffle(), fields(), all(), global_()."
                )
            for grouping in node.inputs:
                self._check(node, grouping)
        return Topology(self._name, dict(self._nodes))

    def _check(self, node: Node, grouping: Grouping) -> None:
        source = self._nodes.get(grouping.source)
        if source is None:
            raise BadTopology(
                f"Bolt {node.name!r} listens to {grouping.source!r}, which does not exist: there are "
                f"{sorted(self._nodes)}."
            )
        fields = source.component.fields_of(grouping.stream)
        if fields is None:
            raise BadTopology(
                f"Bolt {node.name!r} listens to stream {grouping.stream!r} of {source.name!r}, which has only "
                f"{[DEFAULT_STREAM, *source.component.streams]}."
            )
        if grouping.kind == "fields" and not grouping.names:
            raise BadTopology(f"Bolt {node.name!r} groups {source.name!r} by fields but names none.")
        for name in grouping.names:
            if name not in fields:
                raise BadTopology(
                    f"Bolt {node.name!r} groups {source.name!r} by field {name!r}, which has the fields {list(fields)}."
                )


def task_of_key(key: Sequence[Any], parallelism: int) -> int:
    """The task for a key of a fields grouping: the same in every process."""
    return zlib.crc32(repr(tuple(key)).encode()) % parallelism
