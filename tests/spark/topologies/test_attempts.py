"""Tasks are run several times and each reader gets the output of another attempt: nothing is counted twice or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from redis_acker import Acker, BasicBolt, Bolt, OutputCollector, TaskContext, Topology, Tuple
from redis_acker.components.tuples import Edges
from spark_integration.topologies.emission import Emission
from tests.backends import Servers, make_backend
from tests.spark.topologies.attempts import ATTEMPTS, Attempts
from tests.spark.topologies.parts import Split, builder_of

MESSAGES = [f"{number} is a number of {number % 3} words" for number in range(40)]
SEEDS = range(5)


class Letters(BasicBolt):
    """Sends on the letters of a sentence."""

    fields = ("letter", "sentence")

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        for letter in sorted(set(tup["value"])):
            emit(letter, tup["value"])


class Gathers(Bolt):
    """Emits what belongs to a sentence when it has seen all of it, anchored to all of it."""

    fields = ("size", "sentence")

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self.kept: dict[str, list[Tuple]] = {}

    def execute(self, tup: Tuple) -> None:
        self.kept.setdefault(tup["sentence"], []).append(tup)

    def cleanup(self) -> None:
        for sentence, tuples in self.kept.items():
            self.collector.emit([len(tuples), sentence], anchors=tuples)
            for tup in tuples:
                self.collector.ack(tup)


done: set[tuple[Any, ...]] = set()
"""What Sink was given: the log of the work that was done, in whatever attempt."""


class Sink(BasicBolt):
    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        done.add(tup.values)


class SplitsAtRandom(Split):
    """The control: edges are drawn, as in one process."""

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        collector._new_edge = Edges()


runs: Counter[str] = Counter()
"""How often each sentence was split: bolts that look at it do something else in each run."""


def words_of(sentence: str, run: int) -> list[str]:
    """What Forgets emits in this run."""
    return [word for number, word in enumerate(sentence.split()) if (number + run) % 3]


class Changes(BasicBolt):
    """Emits other values whenever it is run."""

    fields = ("word", "sentence", "run")

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        runs[tup["value"]] += 1
        for word in tup["value"].split():
            emit(word, tup["value"], runs[tup["value"]])


class Forgets(BasicBolt):
    """Leaves out words, other ones whenever it is run."""

    fields = ("word", "sentence")

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        runs[tup["value"]] += 1
        for word in words_of(tup["value"], runs[tup["value"]]):
            emit(word, tup["value"])


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    backend = make_backend("redis-7.0", servers)
    runs.clear()
    done.clear()
    assert isinstance(backend.target, str)
    with Acker(backend.target, namespace=namespace, shards=2, block_size=4) as opened:
        yield opened
    backend.delete_keys(namespace)


def topology(split: Bolt) -> Topology:
    """Two ways that meet again: sentences -> words and letters -> gathered -> everywhere."""
    builder = builder_of([])
    builder.bolt("split", split, parallelism=3).shuffle("source")
    builder.bolt("letters", Letters(), parallelism=2).shuffle("source")
    gather = builder.bolt("gather", Gathers(), parallelism=3)
    gather.fields("split", "sentence").fields("letters", "sentence")
    builder.bolt("last", Sink(), parallelism=2).all("gather").shuffle("split").shuffle("letters")
    return builder.build()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_message_is_complete_whichever_attempts_were_read(acker: Acker, seed: int) -> None:
    attempts = Attempts(acker, topology(Split()), MESSAGES, Random(seed))

    assert attempts.complete() == set(range(len(MESSAGES)))
    assert attempts.failed() == 0
    assert attempts.cut_short > 0
    assert sum(shard.duplicates for shard in acker.stats().shards) > 0


def test_control_random_edges_leave_messages_incomplete(acker: Acker) -> None:
    complete = [Attempts(acker, topology(SplitsAtRandom()), MESSAGES, Random(seed)).complete() for seed in SEEDS]
    assert sum(map(len, complete)) < len(SEEDS) * len(MESSAGES)


def test_no_two_tasks_send_or_get_the_same_edge() -> None:
    """Otherwise two deliveries, or two acks of one, could cancel each other."""

    def edge(sender: int, target: int) -> int:
        emission = Emission(b"run", sender)
        emission.at(b"key")
        emission.begin(["value"], [target])
        emission.next_target()
        return emission.new_edge()

    assert len({edge(1, 2), edge(1, 3), edge(2, 2), edge(2, 3)}) == 4
    assert edge(1, 2) == edge(1, 2)


@pytest.mark.parametrize("tasks", [2, 3, 7])
@pytest.mark.parametrize("every", [1, 2, 3, 10])
def test_a_shuffle_deals_evenly_also_if_tuples_were_left_out(tasks: int, every: int) -> None:
    counts: Counter[int] = Counter()
    for number in range(0, 200 * every, every):
        emission = Emission(b"run", 1)
        emission.at(number.to_bytes(8, "big"))
        counts[emission.turn(tasks)] += 1
    assert max(counts[task] for task in range(tasks)) - min(counts[task] for task in range(tasks)) <= 10


def split_and_count(acker: Acker, split: Bolt) -> Iterator[str]:
    """Splits with a bolt, and counts with another, many times. Gives the messages that are complete each time."""
    builder = builder_of([])
    builder.bolt("split", split, parallelism=2).shuffle("source")
    builder.bolt("count", Sink(), parallelism=2).fields("split", "word")
    completed = 0
    for seed in range(12):
        runs.clear()
        done.clear()
        complete = Attempts(acker, builder.build(), MESSAGES, Random(seed)).complete()
        completed += len(complete)
        yield from (MESSAGES[root] for root in complete)
    assert 0 < completed < 12 * len(MESSAGES)


def test_values_of_two_runs_never_complete_a_message_together(acker: Acker) -> None:
    for message in split_and_count(acker, Changes()):
        of_runs = [{(word, message, run) for word in message.split()} for run in range(1, ATTEMPTS + 1)]
        assert any(of_run <= done for of_run in of_runs)


def test_what_one_run_forgets_is_not_made_up_for_by_another(acker: Acker) -> None:
    for message in split_and_count(acker, Forgets()):
        of_runs = [{(word, message) for word in words_of(message, run)} for run in range(3)]
        assert any(of_run <= done for of_run in of_runs)
