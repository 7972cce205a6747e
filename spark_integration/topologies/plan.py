"""What executors know of a topology: its bolts, who listens to whom, and the levels a micro-batch passes through."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

from redis_acker.bolt import Component, TaskContext
from redis_acker.topology import BadTopology, Node, Topology
from redis_acker.tuples import DEFAULT_STREAM
from spark_integration.topologies.partitions import partition_keys
from spark_integration.topologies.wire import Row, pickle_by_value


@dataclass(frozen=True)
class Plan:
    """Everything here is plain data: it travels to executors with each level of a micro-batch."""

    run: bytes
    """Differs from run to run, and so do the edges made of it."""
    topology: Topology
    """With the fields of components in place of the components: sources stay in the driver."""
    bolts: dict[str, bytes]
    """Pickled."""
    tasks: list[TaskContext]
    """Of all bolts; elsewhere a task is named by its place in this list."""
    sources: list[tuple[str, str]]
    """Component and stream of what is emitted; elsewhere named by its place in this list."""
    levels: list[list[str]]
    """Bolts that work side by side; each level gets what those before it emit."""

    @cached_property
    def tasks_of(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, context in enumerate(self.tasks):
            found.setdefault(context.component, []).append(number)
        return found

    def tasks_at(self, level: int) -> list[int]:
        return [task for component in self.levels[level] for task in self.tasks_of[component]]

    def partitions_at(self, level: int) -> int:
        return len(self.tasks_at(level))

    def address(self, task: int, data: bytes, level: int) -> Row:
        """A row for a task. Each task of the level has a partition to itself; what only passes goes with any."""
        if level >= len(self.levels):
            return Row(0, task, data)
        tasks = self.tasks_at(level)
        keys = partition_keys(len(tasks))
        place = tasks.index(task) if task in tasks else task % len(tasks)
        return Row(keys[place], task, data)


def make_plan(topology: Topology) -> Plan:
    nodes = topology.nodes.values()
    bolts = [node for node in nodes if not node.is_spout]
    return Plan(
        run=os.urandom(16),
        topology=Topology(topology.name, {node.name: _outline(node) for node in nodes}),
        bolts={node.name: _pickled(node) for node in bolts},
        tasks=[TaskContext(node.name, task, node.parallelism) for node in bolts for task in range(node.parallelism)],
        sources=[(node.name, stream) for node in nodes for stream in node.component.all_streams()],
        levels=_levels(topology),
    )


def _outline(node: Node) -> Node:
    outline = Component()
    streams = dict(node.component.all_streams())
    outline.fields = tuple(streams.pop(DEFAULT_STREAM))
    outline.streams = {name: tuple(fields) for name, fields in streams.items()}
    return Node(node.name, outline, node.parallelism, list(node.inputs))


def _pickled(node: Node) -> bytes:
    try:
        return pickle_by_value(node.component)
    except Exception as error:
        raise BadTopology(
            f"{node.name!r} cannot be sent to executors ({error}): open connections, files and locks in prepare(), not "
            "before."
        ) from error


def _levels(topology: Topology) -> list[list[str]]:
    """Each bolt behind all it listens to. In a circle one of them comes first: what is emitted back to it has to wait
    for the next micro-batch."""
    placed = {node.name for node in topology.nodes.values() if node.is_spout}
    waiting = [node for node in topology.nodes.values() if not node.is_spout]
    levels: list[list[str]] = []
    while waiting:
        ready = [node for node in waiting if _sources(node) <= placed]
        if not ready:
            ready = [node for node in waiting if _sources(node) & placed][:1] or waiting[:1]
        levels.append([node.name for node in ready])
        placed.update(levels[-1])
        waiting = [node for node in waiting if node.name not in placed]
    return levels


def _sources(node: Node) -> set[str]:
    return {grouping.source for grouping in node.inputs}
