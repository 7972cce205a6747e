"""Components, topologies and watchers that the tests put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from redis_acker import (
    BasicBolt,
    Bolt,
    DeadLetter,
    LocalRunner,
    Message,
    Observer,
    OutputCollector,
    RetryPolicy,
    Spout,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.store.message_ids import MessageId
from tests.components.store import Store

T = TypeVar("T")

NO_PAUSE = RetryPolicy(max_attempts=3, first_ms=0, jitter=0)
ONE_ATTEMPT = RetryPolicy(max_attempts=1)

SPOUT_NAME = "job/source/0"
"""The spout of the topologies below, as the store knows it."""


class Shared(list[T]):
    """A list that all copies of a component share."""

    def __deepcopy__(self, memo: object) -> Shared[T]:
        return self


class Relay(BasicBolt):
    """Sends on what it gets."""

    fields = ("value",)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        emit(tup["value"])


class Note(BasicBolt):
    """Notes the values it gets, with its task."""

    def __init__(self) -> None:
        self.values: Shared[Any] = Shared()
        self.tuples: Shared[Tuple] = Shared()
        self.tasks: Shared[int] = Shared()

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self.task = context.task

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        self.values.append(tup[0] if len(tup) == 1 else tup.values)
        self.tuples.append(tup)
        self.tasks.append(self.task)


class Does(Bolt):
    """An explicit bolt that does what a function says."""

    def __init__(self, act: Callable[[OutputCollector, Tuple], None], fields: Sequence[str] = ("value",)) -> None:
        self.fields = fields
        self._act = act

    def execute(self, tup: Tuple) -> None:
        self._act(self.collector, tup)


class Raises(BasicBolt):
    """Raises an error for some values, and sends on the others."""

    fields = ("value",)

    def __init__(self, error: Exception, values: Iterable[Any]) -> None:
        self._error, self._values = error, set(values)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] in self._values:
            raise self._error
        emit(tup["value"])


class ListSpout(Spout):
    """Hands out messages once, and notes what it is told."""

    fields = ("value",)

    def __init__(self, messages: Iterable[Message]) -> None:
        self.told: Shared[tuple[str, MessageId]] = Shared()
        self._messages = list(messages)

    def next_batch(self, limit: int) -> list[Message]:
        batch, self._messages = self._messages[:limit], self._messages[limit:]
        return batch

    def ack(self, message_id: MessageId) -> None:
        self.told.append(("ack", message_id))

    def fail(self, message_id: MessageId) -> None:
        self.told.append(("fail", message_id))

    def dead(self, message_id: MessageId) -> None:
        self.told.append(("dead", message_id))


class Watcher(Observer):
    """Notes what happens."""

    def __init__(self) -> None:
        self.completed: dict[MessageId, int] = {}
        self.failed: list[tuple[MessageId, str]] = []
        self.letters: list[DeadLetter] = []

    def on_complete(self, message_id: MessageId, latency_ms: int) -> None:
        assert message_id not in self.completed
        self.completed[message_id] = latency_ms

    def on_fail(self, message_id: MessageId, reason: str) -> None:
        self.failed.append((message_id, reason))

    def on_dead(self, letter: DeadLetter) -> None:
        self.letters.append(letter)

    def has_failed(self, times: int) -> bool:
        return len(self.failed) == times


def topology(source: Spout | Iterable[Any], *bolts: Bolt) -> Topology:
    """source -> bolt0 -> bolt1 -> ..."""
    builder = TopologyBuilder("job")
    builder.spout("source", source if isinstance(source, Spout) else IterableSpout(source))
    before = "source"
    for number, bolt in enumerate(bolts):
        builder.bolt(f"bolt{number}", bolt).shuffle(before)
        before = f"bolt{number}"
    return builder.build()


def run(topology: Topology, store: Store | None, **options: Any) -> LocalRunner:
    """Runs until every message is completed or dead."""
    runner = LocalRunner(topology, store.acker if store else None, **{"retries": ONE_ATTEMPT, **options})
    with runner:
        assert runner.wait_until_idle(timeout_s=30)
    return runner
