"""A topology: which components there are, and who listens to whom."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TypeVar

from redis_acker.components.component import Component, TaskContext
from redis_acker.components.spout import Spout
from redis_acker.errors import BadTopology
from redis_acker.topology.routing import Grouping

C = TypeVar("C", bound=Component)


@dataclass
class ComponentSpec:
    """A component of a topology: its name, how many tasks it has, and what it listens to."""

    name: str
    component: Component
    parallelism: int
    inputs: list[Grouping] = field(default_factory=list)
    tick_every_s: float | None = None
    """How often each task gets a tick tuple; None: never."""

    @property
    def is_spout(self) -> bool:
        return isinstance(self.component, Spout)

    @property
    def tasks(self) -> list[TaskContext]:
        return [TaskContext(self.name, task, self.parallelism) for task in range(self.parallelism)]

    def copy_for_task(self, kind: type[C]) -> C:
        """A task's own copy of the component, which is of this kind."""
        try:
            component = copy.deepcopy(self.component)
        except Exception as error:
            raise BadTopology(
                f"{self.name!r} cannot be copied for its tasks ({error}): open connections, files and locks in "
                "prepare() or open(), not before."
            ) from error
        assert isinstance(component, kind)
        return component


@dataclass(frozen=True)
class Topology:
    """Components and groupings that have been checked."""

    name: str
    components: dict[str, ComponentSpec]
    timeout_ms: int | None = None
    """How long a bolt may have a tuple; None: as long as the namespace says."""

    @property
    def spouts(self) -> list[ComponentSpec]:
        return [spec for spec in self.components.values() if spec.is_spout]

    @property
    def bolts(self) -> list[ComponentSpec]:
        return [spec for spec in self.components.values() if not spec.is_spout]

    def listeners(self, component: str, stream: str) -> list[tuple[ComponentSpec, Grouping]]:
        """Who listens to a stream of a component."""
        return [
            (spec, grouping)
            for spec in self.components.values()
            for grouping in spec.inputs
            if (grouping.component, grouping.stream) == (component, stream)
        ]
