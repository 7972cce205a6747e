"""Bolts: the components that work on tuples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis_acker.collector import OutputCollector
from redis_acker.tuples import DEFAULT_STREAM, Tuple

log = logging.getLogger(__name__)


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
        return self.all_streams().get(stream)

    def all_streams(self) -> dict[str, Sequence[str]]:
        """The fields of every stream, by its name."""
        return {DEFAULT_STREAM: self.fields, **self.streams}


class Bolt(Component):
    """A bolt that acks, or fails, every tuple it is given by itself, now or later."""

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        """Called once, before the first tuple."""
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        """Works on a tuple. An exception fails it; if it is finished already, the exception is only logged."""
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
    except Exception as error:
        if tup.outcome:
            # Too late to fail it: the log is the only place left to say so.
            log.exception("Bolt %s raised an error after %s was %s.", collector.component, tup, tup.outcome)
        elif isinstance(error, FailedTuple):
            collector.fail(tup, str(error), fatal=error.fatal)
        else:
            log.warning("Bolt %s raised an error, which fails %s.", collector.component, tup, exc_info=True)
            collector.fail(tup, _text(error))


def _text(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # its own __str__ is broken
        return type(error).__name__
