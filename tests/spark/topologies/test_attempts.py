"""Tasks are run several times and each reader gets the output of another attempt: nothing is counted twice or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from redis_acker import BasicBolt, Bolt, OutputCollector, TaskContext, Topology, Tuple
from redis_acker.components.tuples import Edges
from tests.spark.topologies.attempts import Attempts
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


class Sink(BasicBolt):
    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        pass


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
def test_every_message_is_complete_whichever_attempts_were_read(seed: int) -> None:
    attempts = Attempts(topology(Split()), MESSAGES, Random(seed))

    assert attempts.complete() == set(range(len(MESSAGES)))
    assert attempts.result.fails == {}
    assert attempts.result.counters["split"].executed == len(MESSAGES)


@pytest.mark.parametrize("seed", SEEDS)
def test_control_random_edges_leave_messages_incomplete(seed: int) -> None:
    assert len(Attempts(topology(SplitsAtRandom()), MESSAGES, Random(seed)).complete()) < len(MESSAGES)


def words_read(split: Bolt, seed: int) -> tuple[Attempts, dict[str, list[tuple[str, ...]]]]:
    """Splits with a bolt, and counts with another. Also returns what was counted, by sentence."""
    builder = builder_of([])
    builder.bolt("split", split, parallelism=2).shuffle("source")
    builder.bolt("count", Sink(), parallelism=4).fields("split", "word")
    attempts = Attempts(builder.build(), MESSAGES, Random(seed))
    assert len(attempts.complete()) < len(MESSAGES)
    return attempts, {
        message: [(word, *rest) for word, sentence, *rest in attempts.read if sentence == message]
        for message in MESSAGES
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_values_of_two_runs_never_complete_a_message_together(seed: int) -> None:
    attempts, read = words_read(Changes(), seed)

    for root in attempts.complete():
        words, numbers = zip(*read[MESSAGES[root]], strict=True)
        assert sorted(words) == sorted(MESSAGES[root].split())
        assert len(set(numbers)) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_what_one_run_forgets_is_not_made_up_for_by_another(seed: int) -> None:
    attempts, read = words_read(Forgets(), seed)

    for root in attempts.complete():
        words = sorted(word for (word,) in read[MESSAGES[root]])
        assert words in [sorted(words_of(MESSAGES[root], run)) for run in range(3)]
