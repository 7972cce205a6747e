"""A topology that cannot work is refused, and the error names the component and the mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from redis_acker import BasicBolt, BatchBolt, Spout, TopologyBuilder, Tuple
from redis_acker.errors import BadTopology
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.spouts.jsonl import JsonLinesSpout
from redis_acker.spouts.kafka import KafkaSpout
from redis_acker.spouts.rabbitmq import RabbitMqSpout
from redis_acker.spouts.redis_stream import RedisStreamSpout
from redis_acker.testing import FeederSpout
from tests.topology.parts import Relay

Mistake = Callable[[TopologyBuilder], Any]


class TwoStreams(Relay):
    streams = {"errors": ["line", "text"]}  # noqa: RUF012


class Awaits(BasicBolt):
    async def process(self, tup: Tuple, emit: Callable[..., None]) -> None:  # type: ignore[override]
        emit(tup["value"])


class Yields(BatchBolt):
    def process_batch(self, tuples: list[Tuple]) -> Any:
        yield from tuples


class AwaitsAcks(Spout):
    async def ack(self, message_id: Any) -> None:  # type: ignore[override]
        pass


def with_fields(fields: Any, **streams: Any) -> BasicBolt:
    bolt = BasicBolt()
    bolt.fields, bolt.streams = fields, streams
    return bolt


def with_streams(streams: Any) -> BasicBolt:
    bolt = BasicBolt()
    bolt.streams = streams
    return bolt


MISTAKES: dict[str, tuple[Mistake, str]] = {
    "unknown source": (
        lambda builder: builder.bolt("count", Relay()).shuffle("spilt"),
        "Bolt 'count' listens to 'spilt', which does not exist: there are ['count', 'source', 'split'].",
    ),
    "a component for a source": (
        lambda builder: builder.bolt("count", Relay()).shuffle(["split"]),  # type: ignore[arg-type]
        "Bolt 'count' listens to ['split'], which does not exist: there are ['count', 'source', 'split'].",
    ),
    "unknown stream": (
        lambda builder: builder.bolt("count", Relay()).shuffle("split", stream="warnings"),
        "Bolt 'count' listens to stream 'warnings' of 'split', which has only ['default', 'errors'].",
    ),
    "several streams": (
        lambda builder: builder.bolt("count", Relay()).shuffle("split", stream=["errors"]),  # type: ignore[arg-type]
        "Bolt 'count' listens to stream ['errors'] of 'split', which has only ['default', 'errors'].",
    ),
    "streams without fields": (
        lambda builder: builder.bolt("count", with_streams(["errors"])).shuffle("split"),
        "streams of 'count' must map names of streams to lists of fields, such as {'long': ['word']}, not ['errors'].",
    ),
    "a stream without a name": (
        lambda builder: builder.bolt("count", with_streams({1: ["word"]})).shuffle("split"),
        "streams of 'count' must map names of streams to lists of fields, such as {'long': ['word']}, not "
        "{1: ['word']}.",
    ),
    "unknown field": (
        lambda builder: builder.bolt("count", Relay()).fields("split", "value", "word"),
        "Bolt 'count' groups 'split' by field 'word', but stream 'default' has the fields ['value'].",
    ),
    "unknown field of a stream": (
        lambda builder: builder.bolt("count", Relay()).fields("split", "value", stream="errors"),
        "Bolt 'count' groups 'split' by field 'value', but stream 'errors' has the fields ['line', 'text'].",
    ),
    "no field": (
        lambda builder: builder.bolt("count", Relay()).fields("split"),
        "Bolt 'count' groups 'split' by fields but names none.",
    ),
    "a coroutine": (
        lambda builder: builder.bolt("count", Awaits()).shuffle("split"),
        "process() of 'count' is a coroutine, which runners do not await: make it a plain function that runs what it "
        "awaits, with asyncio.run() for example.",
    ),
    "a coroutine of a spout": (
        lambda builder: builder.spout("awaits", AwaitsAcks()),
        "ack() of 'awaits' is a coroutine, which runners do not await: make it a plain function that runs what it "
        "awaits, with asyncio.run() for example.",
    ),
    "a generator": (
        lambda builder: builder.bolt("count", Yields()).shuffle("split"),
        "process_batch() of 'count' has a yield, but nobody asks for what it yields: call emit.",
    ),
    "no inputs": (
        lambda builder: builder.bolt("count", Relay()),
        "Bolt 'count' listens to nothing: add shuffle(), fields(), all(), global_().",
    ),
    "the same input twice": (
        lambda builder: builder.bolt("count", Relay()).shuffle("split").fields("split", "value"),
        "Bolt 'count' listens to stream 'default' of 'split' 2 times and would get every tuple as often: choose one "
        "grouping.",
    ),
    "a name taken by a bolt": (
        lambda builder: builder.bolt("split", Relay()),
        "There is a component 'split' already: give each its own name.",
    ),
    "a name taken by a spout": (
        lambda builder: builder.spout("source", IterableSpout([])),
        "There is a component 'source' already: give each its own name.",
    ),
    "no name": (lambda builder: builder.bolt("", Relay()), "A component needs a name, not ''."),
    "a number for a name": (
        lambda builder: builder.bolt(7, Relay()),  # type: ignore[arg-type]
        "A component needs a name, not 7.",
    ),
    "no parallelism": (
        lambda builder: builder.bolt("count", Relay(), parallelism=0),
        "The parallelism of 'count' must be a whole number from 1, not 0.",
    ),
    "half a task": (
        lambda builder: builder.spout("other", IterableSpout([]), parallelism=1.5),  # type: ignore[arg-type]
        "The parallelism of 'other' must be a whole number from 1, not 1.5.",
    ),
    "a truth for parallelism": (
        lambda builder: builder.bolt("count", Relay(), parallelism=True),
        "The parallelism of 'count' must be a whole number from 1, not True.",
    ),
    "a class for a bolt": (
        lambda builder: builder.bolt("count", Relay),  # type: ignore[arg-type]
        f"Bolt 'count' must be an object of a class derived from Bolt, not {Relay!r}.",
    ),
    "a bolt for a spout": (
        lambda builder: builder.spout("count", with_fields(())),  # type: ignore[arg-type]
        "Spout 'count' must be an object of a class derived from Spout, not",
    ),
    "a spout for a bolt": (
        lambda builder: builder.bolt("count", Spout()),  # type: ignore[arg-type]
        "Bolt 'count' must be an object of a class derived from Bolt, not",
    ),
    "a text for fields": (
        lambda builder: builder.bolt("count", with_fields("word")).shuffle("split"),
        "The fields of stream 'default' of 'count' must be a list of different names, such as ['word', 'count'], not "
        "'word'.",
    ),
    "a number for fields": (
        lambda builder: builder.bolt("count", with_fields((), errors=5)).shuffle("split"),
        "The fields of stream 'errors' of 'count' must be a list of different names, such as ['word', 'count'], not 5.",
    ),
    "numbers for names": (
        lambda builder: builder.bolt("count", with_fields([1, 2])).shuffle("split"),
        "The fields of stream 'default' of 'count' must be a list of different names, such as ['word', 'count'], not "
        "[1, 2].",
    ),
    "a field twice": (
        lambda builder: builder.bolt("count", with_fields(("word", "word"))).shuffle("split"),
        "The fields of stream 'default' of 'count' must be a list of different names, such as ['word', 'count'], not "
        "('word', 'word').",
    ),
    "the default stream among the others": (
        lambda builder: builder.bolt("count", with_fields((), default=["word"])).shuffle("split"),
        "'count' declares stream 'default' in streams: its place is fields.",
    ),
}


@pytest.mark.parametrize(("make", "text"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_component(make: Mistake, text: str) -> None:
    with pytest.raises(BadTopology, match=re.escape(text)):
        build_with(make)


def build_with(make: Mistake) -> None:
    """A topology that would be right without the mistake."""
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([]))
    builder.bolt("split", TwoStreams()).shuffle("source")
    make(builder)
    builder.build()


def test_a_topology_without_spout_is_refused() -> None:
    builder = TopologyBuilder("job")
    builder.bolt("count", Relay()).shuffle("count")
    with pytest.raises(BadTopology, match="Topology 'job' has no spout: add one, nothing else brings messages"):
        builder.build()


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_topology_needs_a_name(name: Any) -> None:
    with pytest.raises(BadTopology, match=f"A topology needs a name, not {name!r}"):
        TopologyBuilder(name)


def test_a_bolt_may_listen_to_one_that_is_declared_later() -> None:
    builder = TopologyBuilder("job")
    builder.bolt("count", Relay()).shuffle("split").all("split", stream="errors")
    builder.bolt("split", TwoStreams()).shuffle("source")
    builder.spout("source", IterableSpout([]))
    built = builder.build()
    assert [spec.name for spec, _ in built.listeners("split", "errors")] == ["count"]


def test_what_was_built_does_not_change_any_more() -> None:
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([]))
    declarer = builder.bolt("count", Relay()).shuffle("source")
    built = builder.build()
    declarer.shuffle("nobody")
    builder.bolt("late", Relay()).shuffle("source")
    assert [spec.name for spec, _ in built.listeners("source", "default")] == ["count"]
    assert len(built.components["count"].inputs) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda fields: IterableSpout([1], fields=fields),
        lambda fields: FeederSpout(fields),
        lambda fields: JsonLinesSpout("in", checkpoint="at", fields=fields),
        lambda fields: RedisStreamSpout("redis://localhost", "in", group="job", fields=fields),
        lambda fields: KafkaSpout("localhost", "in", group="job", fields=fields),
        lambda fields: RabbitMqSpout("amqp://localhost", "in", fields=fields),
    ],
    ids=["iterable", "feeder", "json lines", "redis stream", "kafka", "rabbitmq"],
)
def test_one_name_in_place_of_a_list_of_fields_is_refused(make: Callable[[Any], Spout]) -> None:
    """Taken for a list of letters it would make a dead letter of every record."""
    builder = TopologyBuilder("job")
    builder.spout("source", make("value"))
    match = r"The fields of stream 'default' of 'source' must be a list .*, not 'value'"
    with pytest.raises(BadTopology, match=match):
        builder.build()
