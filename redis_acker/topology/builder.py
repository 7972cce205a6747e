"""Builds topologies: collects components and groupings, and checks that they fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from redis_acker.components.batch_bolt import BatchBolt
from redis_acker.components.bolt import Bolt
from redis_acker.components.component import Component
from redis_acker.components.spout import Spout
from redis_acker.components.tuples import DEFAULT_STREAM, SYSTEM
from redis_acker.errors import BadTopology
from redis_acker.topology.routing import CustomGrouping, Grouping, Kind
from redis_acker.topology.topology import ComponentSpec, Topology

_CALLED = (
    "execute",
    "process",
    "process_batch",
    "prepare",
    "cleanup",
    "open",
    "next_batch",
    "ack",
    "fail",
    "dead",
    "commit",
)
"""Methods of components that a driver or a runner calls for what they do."""


class BoltDeclarer:
    """Says what a bolt listens to. Calls can be chained."""

    def __init__(self, spec: ComponentSpec) -> None:
        self._spec = spec

    def shuffle(self, component: str, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Each tuple goes to one task, in turn."""
        return self._add(component, stream, "shuffle")

    def fields(self, component: str, *names: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Tuples with equal values in these fields go to the same task."""
        return self._add(component, stream, "fields", names)

    def all(self, component: str, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Each tuple goes to every task."""
        return self._add(component, stream, "all")

    def global_(self, component: str, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """All tuples go to the first task."""
        return self._add(component, stream, "global")

    def local_or_shuffle(self, component: str, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """As shuffle: in a LocalRunner all tasks are in the emitter's process, and on Spark none is known to be."""
        return self.shuffle(component, stream=stream)

    def direct(self, component: str, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """The bolt that emits chooses the task, with emit_direct()."""
        return self._add(component, stream, "direct")

    def custom(self, component: str, grouping: CustomGrouping, *, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """The grouping chooses the tasks."""
        if not isinstance(grouping, CustomGrouping):
            raise BadTopology(
                f"A custom grouping of {self._spec.name!r} must be an object of a class derived from CustomGrouping, "
                f"not {grouping!r}."
            )
        return self._add(component, stream, "custom", custom=grouping)

    def _add(
        self,
        component: str,
        stream: str,
        kind: Kind,
        names: tuple[str, ...] = (),
        *,
        custom: CustomGrouping | None = None,
    ) -> BoltDeclarer:
        self._spec.inputs.append(Grouping(component, stream, kind, names, custom))
        return self


class TopologyBuilder:
    """Collects spouts and bolts; build() checks that they fit together."""

    def __init__(self, name: str, *, timeout_ms: int | None = None) -> None:
        """timeout_ms: how long a bolt may have a tuple before its message fails, if that is to be less than the
        namespace allows."""
        if not isinstance(name, str) or not name:
            raise BadTopology(f"A topology needs a name, not {name!r}.")
        if timeout_ms is not None and not _is_whole(timeout_ms):
            raise BadTopology(f"timeout_ms of {name!r} must be a whole number of ms from 1, not {timeout_ms!r}.")
        self._name, self._timeout_ms = name, timeout_ms
        self._components: dict[str, ComponentSpec] = {}

    def spout(self, name: str, spout: Spout, *, parallelism: int = 1) -> None:
        """Adds a spout. Each task gets a copy."""
        if not isinstance(spout, Spout):
            raise BadTopology(f"Spout {name!r} must be an object of a class derived from Spout, not {spout!r}.")
        self._add(name, spout, parallelism)

    def bolt(self, name: str, bolt: Bolt, *, parallelism: int = 1, tick_every_s: float | None = None) -> BoltDeclarer:
        """Adds a bolt; the result says what it listens to. Each task gets a copy, and a tuple with is_tick every
        tick_every_s seconds."""
        if not isinstance(bolt, Bolt):
            raise BadTopology(f"Bolt {name!r} must be an object of a class derived from Bolt, not {bolt!r}.")
        if tick_every_s is not None and not _is_positive(tick_every_s):
            raise BadTopology(f"tick_every_s of {name!r} must be a number of seconds above 0, not {tick_every_s!r}.")
        if isinstance(bolt, BatchBolt):
            _check_batches(name, bolt, tick_every_s)
        spec = self._add(name, bolt, parallelism)
        spec.tick_every_s = tick_every_s
        return BoltDeclarer(spec)

    def _add(self, name: str, component: Component, parallelism: int) -> ComponentSpec:
        if not isinstance(name, str) or not name:
            raise BadTopology(f"A component needs a name, not {name!r}.")
        if name == SYSTEM:
            raise BadTopology(f"{SYSTEM!r} is the name of the runner itself: choose another.")
        if name in self._components:
            raise BadTopology(f"There is a component {name!r} already: give each its own name.")
        if not _is_whole(parallelism):
            raise BadTopology(f"The parallelism of {name!r} must be a whole number from 1, not {parallelism!r}.")
        self._components[name] = ComponentSpec(name, component, parallelism)
        return self._components[name]

    def build(self) -> Topology:
        """The topology. Raises BadTopology, which names the component and the mistake."""
        # Copied, so that a declarer that is used later does not change what has been checked.
        specs = {name: replace(spec, inputs=list(spec.inputs)) for name, spec in self._components.items()}
        topology = Topology(self._name, specs, self._timeout_ms)
        if not topology.spouts:
            raise BadTopology(f"Topology {self._name!r} has no spout: add one, nothing else brings messages.")
        for spec in specs.values():
            _check_outputs(spec)
            _check_methods(spec)
        for spec in topology.bolts:
            if not spec.inputs:
                raise BadTopology(f"Bolt {spec.name!r} listens to nothing: add shuffle(), fields(), all(), global_().")
            for grouping in spec.inputs:
                _check_input(spec, grouping, specs)
                if grouping.kind == "direct":
                    _check_direct(spec, grouping, topology)
        return topology


def _check_outputs(spec: ComponentSpec) -> None:
    component = spec.component
    if not isinstance(component.streams, Mapping) or not all(isinstance(name, str) for name in component.streams):
        raise BadTopology(
            f"streams of {spec.name!r} must map names of streams to lists of fields, such as {{'long': ['word']}}, not "
            f"{component.streams!r}."
        )
    if DEFAULT_STREAM in component.streams:
        raise BadTopology(f"{spec.name!r} declares stream {DEFAULT_STREAM!r} in streams: its place is fields.")
    for stream, fields in component.all_streams().items():
        if not _are_names(fields):
            raise BadTopology(
                f"The fields of stream {stream!r} of {spec.name!r} must be a list of different names, such as "
                f"['word', 'count'], not {fields!r}."
            )


def _check_methods(spec: ComponentSpec) -> None:
    """A call of such a method does nothing but make an object: a tuple would be acked that nobody has worked on."""
    for name in _CALLED:
        method = getattr(spec.component, name, None)
        if iscoroutinefunction(method) or isasyncgenfunction(method):
            raise BadTopology(
                f"{name}() of {spec.name!r} is a coroutine, which runners do not await: make it a plain function that "
                "runs what it awaits, with asyncio.run() for example."
            )
        if name != "next_batch" and isgeneratorfunction(method):
            raise BadTopology(f"{name}() of {spec.name!r} has a yield, but nobody asks for what it yields: call emit.")


def _check_input(bolt: ComponentSpec, grouping: Grouping, specs: dict[str, ComponentSpec]) -> None:
    upstream = specs.get(grouping.component) if isinstance(grouping.component, str) else None
    if upstream is None:
        raise BadTopology(
            f"Bolt {bolt.name!r} listens to {grouping.component!r}, which does not exist: there are {sorted(specs)}."
        )
    fields = upstream.component.fields_of(grouping.stream) if isinstance(grouping.stream, str) else None
    if fields is None:
        raise BadTopology(
            f"Bolt {bolt.name!r} listens to stream {grouping.stream!r} of {upstream.name!r}, which has only "
            f"{list(upstream.component.all_streams())}."
        )
    same = [one for one in bolt.inputs if (one.component, one.stream) == (grouping.component, grouping.stream)]
    if len(same) > 1:
        raise BadTopology(
            f"Bolt {bolt.name!r} listens to stream {grouping.stream!r} of {upstream.name!r} {len(same)} times and "
            "would get every tuple as often: choose one grouping."
        )
    if grouping.kind == "fields" and not grouping.names:
        raise BadTopology(f"Bolt {bolt.name!r} groups {upstream.name!r} by fields but names none.")
    for name in grouping.names:
        if name not in fields:
            raise BadTopology(
                f"Bolt {bolt.name!r} groups {upstream.name!r} by field {name!r}, but stream {grouping.stream!r} has "
                f"the fields {list(fields)}."
            )


def _check_direct(bolt: ComponentSpec, grouping: Grouping, topology: Topology) -> None:
    if topology.components[grouping.component].is_spout:
        raise BadTopology(
            f"Bolt {bolt.name!r} listens to {grouping.component!r} with a direct grouping, but a spout does not choose "
            "tasks: put a bolt in between that does, or use custom()."
        )
    kinds = {one.kind for _, one in topology.listeners(grouping.component, grouping.stream)}
    if len(kinds) > 1:
        raise BadTopology(
            f"Stream {grouping.stream!r} of {grouping.component!r} has listeners with groupings {sorted(kinds)}, but "
            "what is emitted directly goes to one task: let all be direct, or use another stream for the others."
        )


def _check_batches(name: str, bolt: BatchBolt, tick_every_s: float | None) -> None:
    if not _is_whole(bolt.batch_size):
        raise BadTopology(f"batch_size of {name!r} must be a whole number from 1, not {bolt.batch_size!r}.")
    if tick_every_s is not None:
        raise BadTopology(
            f"Bolt {name!r} is a BatchBolt and gets no tick tuples: it is given what waits, however little, and holds "
            "nothing back. Leave out tick_every_s, or derive it from Bolt."
        )


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _is_positive(seconds: Any) -> bool:
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < float("inf")


def _are_names(fields: Any) -> bool:
    is_list = isinstance(fields, Sequence) and not isinstance(fields, str)
    return is_list and all(isinstance(one, str) for one in fields) and len(set(fields)) == len(fields)
