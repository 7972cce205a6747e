"""The kinds of source, each as a place that tests fill with numbered messages and look into afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from redis_acker import Spout
from redis_acker.spouts.jsonl import JsonLinesSpout
from redis_acker.spouts.kafka import KafkaSpout
from redis_acker.spouts.rabbitmq import RabbitMqSpout
from redis_acker.spouts.redis_stream import RedisStreamSpout
from redis_acker.store.message_ids import MessageId
from tests.kafka import Kafka
from tests.rabbitmq import RabbitMq
from tests.waiting import wait_until

FIELDS = ("number",)
QUICK_GROUPS = {"session.timeout.ms": 4500, "heartbeat.interval.ms": 300}
"""The mock cluster gives a group whose member left this long, less a second, to come together again; a new one 3 s."""


class Place:
    """A source with messages."""

    spec: dict[str, Any]
    """From which another process makes the same spout."""

    def spout(self) -> Spout:
        return spout_from(self.spec)

    def fill(self, numbers: Iterable[int]) -> dict[MessageId, int]:
        """Adds a message for each number. Returns which number is in the message of which id."""
        raise NotImplementedError

    def unfinished(self) -> int:
        """How many messages the source would hand out again, when no driver runs."""
        raise NotImplementedError


@dataclass
class StreamPlace(Place):
    url: str
    stream: str
    client: redis.Redis

    def __post_init__(self) -> None:
        self.spec = {"kind": "stream", "url": self.url, "stream": self.stream, "group": "g"}

    def fill(self, numbers: Iterable[int]) -> dict[MessageId, int]:
        with self.client.pipeline() as pipeline:
            wanted = list(numbers)
            for number in wanted:
                pipeline.xadd(self.stream, {"number": number, "text": f"message {number}"})
            entries = pipeline.execute()
        return {entry.decode(): number for entry, number in zip(entries, wanted, strict=True)}

    def unfinished(self) -> int:
        group: Any = self.client.xinfo_groups(self.stream)
        unread: Any = self.client.xrange(self.stream, min=b"(" + group[0]["last-delivered-id"])
        return int(group[0]["pending"]) + len(unread)


@dataclass
class FilePlace(Place):
    path: Path

    def __post_init__(self) -> None:
        self.checkpoint = self.path.with_suffix(".checkpoint")
        self.spec = {"kind": "file", "path": str(self.path), "checkpoint": str(self.checkpoint)}

    def fill(self, numbers: Iterable[int]) -> dict[MessageId, int]:
        found: dict[MessageId, int] = {}
        with self.path.open("ab") as file:
            for number in numbers:
                found[file.tell()] = number
                file.write(json.dumps({"number": number, "text": f"message {number}"}).encode() + b"\n")
        return found

    def unfinished(self) -> int:
        """A task's checkpoint counts what belongs to another as finished."""
        data = self.path.read_bytes()
        states = [json.loads(path.read_bytes()) for path in self.path.parent.glob("*.checkpoint*")]
        assert states
        starts = [0, *(at + 1 for at, byte in enumerate(data[:-1]) if byte == ord("\n"))]
        return sum(
            any(not any(start <= one < end for start, end in state["finished"]) for state in states) for one in starts
        )


@dataclass
class QueuePlace(Place):
    broker: RabbitMq
    queue: str
    with_ids: bool = True

    def __post_init__(self) -> None:
        self.broker.declare(self.queue)
        self.spec = {"kind": "queue", "url": self.broker.url, "queue": self.queue}

    def fill(self, numbers: Iterable[int]) -> dict[MessageId, int]:
        wanted = list(numbers)
        ids = [f"message-{number}" if self.with_ids else None for number in wanted]
        self.broker.publish(self.queue, zip(ids, (b'{"number": %d}' % number for number in wanted), strict=True))
        return {f"message-{number}": number for number in wanted}

    def unfinished(self) -> int:
        # What a consumer held is back in the queue when RabbitMQ has forgotten the consumer.
        wait_until(lambda: self.broker.consumers(self.queue) == 0)
        return self.broker.count(self.queue)


@dataclass
class TopicPlace(Place):
    kafka: Kafka
    topic: str

    def __post_init__(self) -> None:
        self.spec = {"kind": "topic", "servers": self.kafka.servers, "topic": self.topic, "group": "g"}

    def fill(self, numbers: Iterable[int]) -> dict[MessageId, int]:
        wanted = list(numbers)
        places = self.kafka.publish(self.topic, (b'{"number": %d}' % number for number in wanted))
        return dict(zip(places, wanted, strict=True))

    def unfinished(self) -> int:
        return self.kafka.unfinished(self.topic, "g")


def spout_from(spec: dict[str, Any]) -> Spout:
    if spec["kind"] == "stream":
        return RedisStreamSpout(spec["url"], spec["stream"], group=spec["group"], fields=FIELDS)
    if spec["kind"] == "file":
        return JsonLinesSpout(spec["path"], checkpoint=spec["checkpoint"], fields=FIELDS)
    if spec["kind"] == "topic":
        return KafkaSpout(
            spec["servers"], spec["topic"], group=spec["group"], decode=json.loads, fields=FIELDS, config=QUICK_GROUPS
        )
    return RabbitMqSpout(spec["url"], spec["queue"], decode=json.loads, fields=FIELDS)
