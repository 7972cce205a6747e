"""The plan of a tracked frame: how it is computed from its sources, as often as it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_integration.parts import AnySource
from spark_integration.tracking import Tracking

Build = Callable[[Sequence[DataFrame], "Tracking | None"], DataFrame]


@dataclass(frozen=True, eq=False)
class Node:
    """A step: the frames it works on, and what it makes of them. Without tracking it is only looked at."""

    parents: tuple[Node, ...]
    build: Build
    group_keys: tuple[str, ...] = ()
    """Of an aggregation: the columns that name a group."""

    def all_nodes(self) -> Iterator[Node]:
        """This node and all below it, each once."""
        seen: set[int] = set()
        stack = [self]
        while stack:
            node = stack.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                stack.extend(node.parents)

    def source_nodes(self) -> list[SourceNode]:
        found = [node for node in self.all_nodes() if isinstance(node, SourceNode)]
        return sorted(found, key=lambda node: node.source.spout)


@dataclass(frozen=True, eq=False)
class SourceNode(Node):
    """A frame whose rows are messages."""

    source: AnySource = None  # type: ignore[assignment]

    @classmethod
    def of(cls, source: AnySource) -> SourceNode:
        return cls((), lambda parents, tracking: source.with_keys(), (), source)


class Frames:
    """The frames of a plan, each made once, so that what is used twice stays one and the same."""

    def __init__(self, tracking: Tracking | None = None, sources: dict[SourceNode, AnySource] | None = None) -> None:
        """sources: what a run has made of the sources."""
        self._tracking = tracking
        self._made: dict[Node, DataFrame] = {node: source.with_keys() for node, source in (sources or {}).items()}

    def of(self, node: Node) -> DataFrame:
        if node not in self._made:
            self._made[node] = node.build([self.of(parent) for parent in node.parents], self._tracking)
        return self._made[node]


def group_key(columns: Sequence[str]) -> Column:
    """The key of a group: a hash of what names it. Nulls count too: a hash alone would leave them out."""
    parts = [part for name in columns for part in (F.col(f"`{name}`").isNull(), F.col(f"`{name}`"))]
    return F.xxhash64(F.lit("group"), *map(F.lit, columns), *parts)
