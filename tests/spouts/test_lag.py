"""How much waits in a source, as its spout tells it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from redis_acker import Spout, TaskContext
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.spouts.rabbitmq import RabbitMqSpout
from redis_acker.spouts.redis_stream import RedisStreamSpout
from tests.spouts.places import QueuePlace, StreamPlace
from tests.waiting import wait_until


def opened(spout: Spout, task: int = 0, parallelism: int = 1) -> Any:
    spout.open(TaskContext("source", task, parallelism))
    return spout


def test_a_list_knows_its_length_and_each_task_its_share() -> None:
    first, second = (opened(IterableSpout(range(5)), task, 2) for task in (0, 1))
    assert (first.lag(), second.lag()) == (3, 2)
    [message] = first.next_batch(1)
    assert first.lag() == 2
    first.fail(message.id)
    first.next_batch(1)  # a replay, which did not wait in the source
    assert first.lag() == 2
    first.next_batch(100)
    assert first.lag() == 0


@pytest.mark.parametrize("items", [iter([1, 2]), (one for one in [1])])
def test_an_iterator_does_not(items: Iterable[int]) -> None:
    assert opened(IterableSpout(items)).lag() is None


def test_of_a_stream_it_is_what_nobody_in_the_group_has_read(stream_place: StreamPlace) -> None:
    stream_place.fill(range(7))
    spout = opened(RedisStreamSpout(stream_place.url, stream_place.stream, group="g"))
    assert spout.lag() == 7
    assert len(spout.next_batch(3)) == 3
    assert spout.lag() == 4
    spout.close()


def test_of_a_queue_it_is_what_the_broker_and_the_connection_have(queue_place: QueuePlace) -> None:
    queue_place.broker.publish(queue_place.queue, [(f"m{i}", b"x") for i in range(5)])
    spout = opened(RabbitMqSpout(queue_place.broker.url, queue_place.queue))

    def lag() -> Any:
        spout.keep_alive()
        return spout.lag()

    wait_until(lambda: lag() == 5)
    taken: list[Any] = []
    wait_until(lambda: bool(taken.extend(spout.next_batch(100)) or len(taken) == 5))  # type: ignore[func-returns-value]
    assert spout.lag() == 0
    spout.close()
    assert spout.lag() is None
