"""What executors know of a topology: its bolts, who listens to whom, and the levels a micro-batch passes through."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from redis_acker.components.component import Component, TaskContext
from redis_acker.components.tuples import DEFAULT_STREAM, Tuple
from redis_acker.errors import BadInput, BadTopology
from redis_acker.store.acker import Acker
from redis_acker.topology.routing import TupleQueue
from redis_acker.topology.topology import ComponentSpec, Topology
from spark_integration.topologies.wire import DRIVER, WireRow, pickle_by_value
from spark_integration.workers import StoreAddress


@dataclass(frozen=True)
class Plan:
    """Everything here is plain data: it travels to executors with each level of a micro-batch."""

    run: bytes
    """Random, so that the edges made from it differ from run to run."""
    topology: Topology
    """With the fields of components in place of the components: spouts stay in the driver."""
    bolts: dict[str, bytes]
    """Pickled."""
    tasks: list[TaskContext]
    """Of all bolts. Elsewhere a task is named by its place in this list."""
    streams: list[tuple[str, str]]
    """Components with their streams. Elsewhere a stream is named by its place in this list."""
    levels: list[list[str]]
    """Bolts that work side by side. Each level gets what those before it emit."""
    store: StoreAddress | None
    """None if tracking is off."""

    @cached_property
    def tasks_of(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, context in enumerate(self.tasks):
            found.setdefault(context.component, []).append(number)
        return found

    @cached_property
    def stream_numbers(self) -> dict[tuple[str, str], int]:
        return {stream: number for number, stream in enumerate(self.streams)}

    @cached_property
    def senders_to(self) -> list[list[int]]:
        """For each task who sends it something in each micro-batch, if only the news that there is nothing: the driver,
        and the tasks that it listens to at levels before its own."""
        level_of = {name: level for level, names in enumerate(self.levels) for name in names}
        found = []
        for context in self.tasks:
            heard = _upstream(self.topology.components[context.component]) & level_of.keys()
            before = [name for name in sorted(heard) if level_of[name] < level_of[context.component]]
            found.append([DRIVER, *(task for name in before for task in self.tasks_of[name])])
        return found

    def receivers_of(self, sender: int) -> list[int]:
        """The tasks that have this one among their senders."""
        return [task for task, senders in enumerate(self.senders_to) if sender in senders]

    def tasks_at(self, level: int) -> list[int]:
        return [task for component in self.levels[level] for task in self.tasks_of[component]]

    def partitions_at(self, level: int) -> int:
        return len(self.tasks_at(level))

    def address(self, task: int, data: bytes, level: int) -> WireRow:
        """A row for a task. Each task of the level has a partition to itself; a row that only passes goes with any."""
        if level >= len(self.levels):
            return WireRow(0, task, data)
        tasks = self.tasks_at(level)
        return WireRow(tasks.index(task) if task in tasks else task % len(tasks), task, data)

    def queues(self, put: Callable[[int, Tuple], None]) -> dict[str, list[TupleQueue]]:
        """A queue for each task of each bolt, all of which call put with the number of their task."""
        return {name: [NumberedQueue(put, task) for task in tasks] for name, tasks in self.tasks_of.items()}


class NumberedQueue:
    def __init__(self, put: Callable[[int, Tuple], None], task: int) -> None:
        self._put, self.task = put, task

    def put(self, tup: Tuple) -> None:
        self._put(self.task, tup)


def make_plan(topology: Topology, acker: Acker | None = None) -> Plan:
    specs = topology.components.values()
    if ticking := [spec.name for spec in topology.bolts if spec.tick_every_s]:
        raise BadTopology(
            f"Bolt {ticking[0]!r} wants tick tuples, but on Spark a copy of a bolt lives for one micro-batch: do in "
            "cleanup() what it does at a tick, or use LocalRunner."
        )
    if topology.timeout_ms is not None:
        raise BadTopology(
            f"Topology {topology.name!r} has a timeout of its own, but on Spark a job keeps its messages alive for as "
            "long as it runs: leave out timeout_ms, or use LocalRunner."
        )
    if acker and acker.shards._clock:
        raise BadInput("An Acker with a clock of its own cannot be used on Spark: executors do not see that clock.")
    _check_groupings(topology)
    return Plan(
        run=os.urandom(16),
        topology=Topology(topology.name, {spec.name: _outline(spec) for spec in specs}),
        bolts={spec.name: _pickled(repr(spec.name), spec.component) for spec in topology.bolts},
        tasks=[context for spec in topology.bolts for context in spec.tasks],
        streams=[(spec.name, stream) for spec in specs for stream in spec.component.all_streams()],
        levels=_levels(topology),
        store=StoreAddress.of(acker) if acker else None,
    )


def _outline(spec: ComponentSpec) -> ComponentSpec:
    outline = Component()
    streams = dict(spec.component.all_streams())
    outline.fields = tuple(streams.pop(DEFAULT_STREAM))
    outline.streams = {name: tuple(fields) for name, fields in streams.items()}
    return ComponentSpec(spec.name, outline, spec.parallelism, list(spec.inputs))


def _check_groupings(topology: Topology) -> None:
    """Refuses groupings that would fail every job: executors unpickle and prepare them anew for each task."""
    for spec in topology.bolts:
        for grouping in spec.inputs:
            if grouping.custom:
                _pickled(f"The grouping {type(grouping.custom).__name__} of {spec.name!r}", grouping.custom)
                fields = topology.components[grouping.component].component.fields_of(grouping.stream) or ()
                grouping.dealer(fields, spec.parallelism)


def _pickled(name: str, part: object) -> bytes:
    try:
        return pickle_by_value(part)
    except Exception as error:
        raise BadTopology(
            f"{name} cannot be sent to executors ({error}): open connections, files and locks in prepare(), not before."
        ) from error


def _levels(topology: Topology) -> list[list[str]]:
    """Puts each bolt behind all it listens to. In a cycle one of them comes first: what is emitted back to it waits for
    the next micro-batch."""
    placed = {spec.name for spec in topology.spouts}
    waiting = topology.bolts
    levels: list[list[str]] = []
    while waiting:
        ready = [spec for spec in waiting if _upstream(spec) <= placed]
        if not ready:
            ready = [spec for spec in waiting if _upstream(spec) & placed][:1] or waiting[:1]
        levels.append([spec.name for spec in ready])
        placed.update(levels[-1])
        waiting = [spec for spec in waiting if spec.name not in placed]
    return levels


def _upstream(spec: ComponentSpec) -> set[str]:
    return {grouping.component for grouping in spec.inputs}
