"""Components for topologies on Spark. Bolts run in other processes, so they note what they do in Redis."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import redis

from redis_acker import (
    Acker,
    BasicBolt,
    Bolt,
    LocalRunner,
    OutputCollector,
    RetryPolicy,
    Spout,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)
from redis_acker.spouts.iterable import IterableSpout

QUICK = RetryPolicy(max_attempts=3, first_ms=1, jitter=0)


@dataclass(frozen=True)
class Notebook:
    """A place in Redis that tests and bolts share."""

    url: str
    key: str

    def write(self, *note: Any) -> None:
        self._client().rpush(self.key, json.dumps(note))

    def read(self) -> list[tuple[Any, ...]]:
        notes = cast("list[bytes]", self._client().lrange(self.key, 0, -1))
        return [tuple(json.loads(note)) for note in notes]

    def count(self, name: Any) -> int:
        """How often this was called with this name, this time included."""
        return self._client().hincrby(f"{self.key}:counts", str(name), 1)

    def has_counted(self, name: Any) -> bool:
        return bool(self._client().hexists(f"{self.key}:counts", str(name)))

    def _client(self) -> redis.Redis:
        if self.url not in _clients:
            _clients[self.url] = redis.Redis.from_url(self.url)
        return _clients[self.url]


_clients: dict[str, redis.Redis] = {}


class Relay(BasicBolt):
    """Sends on what it gets."""

    fields = ("value",)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        emit(tup["value"])


class Split(BasicBolt):
    """Sends on words, each with its sentence."""

    fields = ("word", "sentence")

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        for word in tup["value"].split():
            emit(word, tup["value"])


class Note(BasicBolt):
    """Notes its component, its task and the values it gets."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self.context = context

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        self.notebook.write(self.context.component, self.context.task, *tup.values)


class Calls(Bolt):
    """Calls a function with itself and each tuple."""

    fields = ("value",)

    def __init__(self, act: Callable[[Calls, Tuple], None], notebook: Notebook | None = None) -> None:
        self.act, self.notebook = act, notebook
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.act(self, tup)


def die() -> None:
    """Ends this Python worker as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


def builder_of(source: Spout | Iterable[Any]) -> TopologyBuilder:
    """With one spout, named source."""
    builder = TopologyBuilder("job")
    builder.spout("source", source if isinstance(source, Spout) else IterableSpout(source))
    return builder


def chain(source: Spout | Iterable[Any], *bolts: Bolt) -> Topology:
    """source -> bolt0 -> bolt1 -> ..."""
    builder, before = builder_of(source), "source"
    for number, bolt in enumerate(bolts):
        builder.bolt(f"bolt{number}", bolt, parallelism=2).shuffle(before)
        before = f"bolt{number}"
    return builder.build()


def run_locally(topology: Topology, acker: Acker) -> LocalRunner:
    with LocalRunner(topology, acker, retries=QUICK) as runner:
        assert runner.wait_until_idle(timeout_s=30)
    return runner
