"""Fixtures: a store, a broker, and the places that messages come from."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Acker
from tests.kafka import Kafka
from tests.rabbitmq import RabbitMq
from tests.spouts.places import FilePlace, Place, QueuePlace, StreamPlace, TopicPlace


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMq]:
    """One broker for the run; each test uses queues of its own."""
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # it reports what the product reports too
    broker = RabbitMq()
    yield broker
    broker.stop()


@pytest.fixture
def acker(url: str, client: Any, namespace: str) -> Iterator[Acker]:
    with Acker(url, namespace=namespace) as found:
        yield found
    for key in client.scan_iter(match=f"*{namespace}*", count=1000):
        client.delete(key)


@pytest.fixture
def stream_place(url: str, client: Any, namespace: str) -> StreamPlace:
    return StreamPlace(url, f"{namespace}:stream", client)


@pytest.fixture
def file_place(tmp_path: Path) -> FilePlace:
    return FilePlace(tmp_path / "numbers.jsonl")


@pytest.fixture
def queue_place(rabbitmq: RabbitMq, namespace: str) -> Iterator[QueuePlace]:
    found = QueuePlace(rabbitmq, f"{namespace}-queue")
    yield found
    rabbitmq.delete(found.queue)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One cluster for the run; each test uses a topic of its own."""
    found = Kafka()
    yield found
    found.stop()


@pytest.fixture
def topic_place(kafka: Kafka, namespace: str) -> TopicPlace:
    return TopicPlace(kafka, f"{namespace}-topic")


@pytest.fixture(params=["stream", "file", "queue", "topic"])
def place(request: pytest.FixtureRequest) -> Place:
    """Runs the test once per kind of source."""
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found
