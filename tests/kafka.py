"""A Kafka cluster for tests: the mock of librdkafka, in a process of its own, reached over TCP.

    python -m tests.kafka

prints its address and runs until its standard input ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition


class Kafka:
    """The cluster as tests see it. It makes topics of four partitions when they are first used."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        self.servers = self._process.stdout.readline().strip()
        self._producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})

    def publish(self, topic: str, values: Iterable[bytes], **options: Any) -> list[str]:
        """Returns where each message is: partition:offset."""
        places: list[str] = []
        for value in values:
            self._producer.produce(topic, value, on_delivery=lambda _, record: places.append(_place(record)), **options)
            # One after the other, so that the places come in the order of the values.
            self._producer.flush(10)
        return places

    def unfinished(self, topic: str, group: str) -> int:
        """How many messages a group has not committed; metadata aside."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            partitions = [TopicPartition(topic, number) for number in self.partitions(topic)]
            ends = [consumer.get_watermark_offsets(one, timeout=10)[1] for one in partitions]
            committed = [max(0, one.offset) for one in consumer.committed(partitions, timeout=10)]
            return sum(ends) - sum(committed)
        finally:
            consumer.close()

    def partitions(self, topic: str) -> list[int]:
        return sorted(self._producer.list_topics(topic, timeout=10).topics[topic].partitions)

    def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


def _place(record: Any) -> str:
    return f"{record.partition()}:{record.offset()}"


def main() -> None:
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    brokers = cluster.list_topics(timeout=10).brokers.values()
    print(",".join(f"{one.host}:{one.port}" for one in brokers), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
