"""Bolts: the components that work on tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis_acker.collector import OutputCollector
from redis_acker.tuples import DEFAULT_STREAM, Tuple


class FailedTuple(Exception):
    """Raised by a bolt to fail the tuple it works on, with a text that explains why."""

    def __init__(self, error: str = "", *, fatal: bool = False) -> None:
        super().__init__(error)
        self.fatal = fatal


@dataclass(frozen=True)
class TaskContext:
    """Which task a component runs as."""

    component: str
    task: int
    parallelism: int


class Component:
    """What spouts and bolts have in common: the fields of what they emit."""

    fields: Sequence[str] = ()
    """Names of the values emitted to the default stream."""

    streams: dict[str, Sequence[str]] = {}  # noqa: RUF012 -- overridden as a whole, never changed
    """Other streams, by name, with the names of their fields."""

    def fields_of(self, stream: str) -> Sequence[str] | None:
        """The fields of a stream; None if the component does not have it."""
        return self.fields if stream == DEFAULT_STREAM else self.streams.get(stream)


class Bolt(Component):
    """A bolt that acks, or fails, every tuple it is given by itself, now or later."""

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        """Called once, before the first tuple."""
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        """Works on a tuple. An exception fails it, unless it is finished."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """Called once, after the last tuple."""


class BasicBolt(Bolt):
    """A bolt that only says what to emit: tuples are anchored to the one it works on, which is then acked."""

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        """Works on a tuple; emit(value, ..., stream=...) sends values on. Raise FailedTuple to fail it."""
        raise NotImplementedError

    def execute(self, tup: Tuple) -> None:
        def emit(*values: Any, stream: str = DEFAULT_STREAM) -> None:
            self.collector.emit(values, anchors=tup, stream=stream)

        self.process(tup, emit)
        self.collector.ack(tup)


def execute(bolt: Bolt, collector: OutputCollector, tup: Tuple) -> None:
    """Runs a bolt on one tuple. What it raises fails that tuple and no other."""
    try:
        bolt.execute(tup)
    except FailedTuple as error:
        _fail_unless_finished(collector, tup, str(error), error.fatal)
    except Exception as error:
        _fail_unless_finished(collector, tup, f"{type(error).__name__}: {error}", False)


def _fail_unless_finished(collector: OutputCollector, tup: Tuple, error: str, fatal: bool) -> None:
    if not tup.outcome:
        collector.fail(tup, error, fatal=fatal)
