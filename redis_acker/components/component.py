"""What spouts and bolts have in common: the fields of what they emit, their tasks, and the way to those who listen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple, Protocol

from redis_acker.components.tuples import DEFAULT_STREAM, Anchors


class Component:
    """A spout or a bolt."""

    fields: Sequence[str] = ()
    """Names of the values emitted to the default stream."""

    streams: dict[str, Sequence[str]] = {}  # noqa: RUF012 -- overridden as a whole, never changed
    """Other streams, by name, with the names of their fields."""

    def fields_of(self, stream: str) -> Sequence[str] | None:
        """The fields of a stream; None if the component does not have it."""
        return self.all_streams().get(stream)

    def all_streams(self) -> dict[str, Sequence[str]]:
        """The fields of every stream, by name."""
        return {DEFAULT_STREAM: self.fields, **self.streams}


@dataclass(frozen=True)
class TaskContext:
    """Which task a component runs as."""

    component: str
    task: int
    parallelism: int


class TaskId(NamedTuple):
    """One task of a component."""

    component: str
    task: int


class Router(Protocol):
    """Says which tasks get what a spout emits, and delivers it to them. Whoever drives a spout without a runner writes
    one: what targets() returns is handed back to deliver() as it is."""

    def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
        """The tasks that get these values: one delivery each. Raises BadInput for values that cannot be emitted, which
        ends the run; or FailedTuple, and the message becomes a dead letter."""

    def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        """Makes one delivery to one of these tasks."""


class BoltRouter(Router, Protocol):
    """The same for a bolt, which may choose the task itself."""

    def targets(self, stream: str, values: Sequence[Any], to: TaskId | None = None) -> list[Any]:
        """to: the task that the bolt has chosen. Raises BadInput if that is for the grouping to do, or the reverse."""

    def direct_tasks(self, stream: str) -> list[TaskId]:
        """The tasks that a bolt may choose from."""


@dataclass
class ComponentCounters:
    """What a task of a component has done, or all its tasks together."""

    executed: int = 0
    """Tuples that a bolt has worked on."""
    emitted: int = 0
    acked: int = 0
    """Tuples of a bolt; completed messages of a spout."""
    failed: int = 0
    """Tuples of a bolt; failed attempts of a spout's messages."""
    replayed: int = 0
    dead: int = 0
    waited: int = 0
    """Rounds in which max_pending or a lack of memory left a spout no room for new messages."""
    skipped: int = 0
    """Tuples that a bolt was not given, because every tree they were in was over."""
    repeated: int = 0
    """Messages that a spout handed out while another with the same id was in work; they were not emitted."""

    def __add__(self, other: ComponentCounters) -> ComponentCounters:
        return ComponentCounters(*map(sum, zip(astuple(self), astuple(other), strict=True)))
