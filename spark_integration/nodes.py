"""The plan of a tracked frame: how it is computed from its sources, as often as it is asked for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_integration.parts import AnySource
from spark_integration.tracking import Tracking

Build = Callable[[Sequence[DataFrame], "Tracking | None"], DataFrame]


@dataclass(frozen=True)
class Grouping:
    """How an aggregation groups rows. The key of a group is a hash of the aggregation and of what names the group."""

    columns: tuple[str, ...]
    salt: int = field(default_factory=lambda: random.getrandbits(63))
    """Groups of two aggregations must not share keys, though they may share names."""

    def key(self) -> Column:
        # Nulls count too: a hash alone would leave them out.
        parts = [part for name in self.columns for part in (F.col(name).isNull(), F.col(name))]
        return F.xxhash64(F.lit(self.salt), *parts)


@dataclass(frozen=True, eq=False)
class Node:
    """A step: the frames it works on, and what it makes of them. Without tracking it is only looked at."""

    parents: tuple[Node, ...]
    build: Build
    grouping: Grouping | None = None
    """Of an aggregation."""

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


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceNode(Node):
    """A frame whose rows are messages."""

    source: AnySource

    @classmethod
    def of(cls, source: AnySource) -> SourceNode:
        return cls(parents=(), build=lambda parents, tracking: source.with_keys(), source=source)


class Frames:
    """The frames of a plan, each made once, so that what is used twice stays one and the same."""

    def __init__(self, tracking: Tracking | None = None, sources: dict[SourceNode, AnySource] | None = None) -> None:
        """sources: what a run has made of the sources."""
        self._tracking = tracking
        self._made: dict[Node, DataFrame] = {node: source.with_keys() for node, source in (sources or {}).items()}

    def with_those_of(self, others: Frames) -> Frames:
        """Frames that begin with what both have made."""
        both = Frames(self._tracking)
        both._made = {**self._made, **others._made}
        return both

    def of(self, node: Node) -> DataFrame:
        if node not in self._made:
            self._made[node] = node.build([self.of(parent) for parent in node.parents], self._tracking)
        return self._made[node]
