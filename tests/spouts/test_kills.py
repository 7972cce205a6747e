"""A driver that is killed, and the one after it."""

from collections import Counter
from typing import Any

import pytest

from redis_acker import Acker
from tests.spouts.places import Place, QueuePlace
from tests.spouts.worker import Worker
from tests.waiting import wait_until

COUNT = 800
KILLS = 2

pytestmark = pytest.mark.slow


def kill_in_the_middle(worker: Worker) -> None:
    before = len(worker.completed())
    process = worker.start()
    wait_until(lambda: len(worker.completed()) >= before + COUNT // 8, 30, poll_s=0.005)
    assert process.poll() is None
    worker.kill(process)


def finish(worker: Worker) -> None:
    assert worker.start().wait(60) == 0


def test_what_a_killed_driver_left_is_finished_and_nothing_that_was_completed_is_processed_again(
    place: Place, url: str, client: Any, namespace: str
) -> None:
    ids = place.fill(range(COUNT))
    worker = Worker(url, client, namespace, place.spec)
    kills = []
    for _ in range(KILLS):
        kill_in_the_middle(worker)
        kills.append(({ids[one] for one in worker.completed()}, len(worker.processed())))
        if isinstance(place, QueuePlace):
            place.unfinished()  # waits until RabbitMQ has noticed the death, as RabbitMqSpout wants it

    finish(worker)

    for completed_before, processed_before in kills:
        assert completed_before.intersection(worker.processed()[processed_before:]) == set()
    assert set(worker.processed()) == set(range(COUNT))
    assert {ids[one] for one in worker.completed()} == set(range(COUNT))
    assert place.unfinished() == 0
    with Acker(url, namespace=namespace) as acker:
        assert acker.pending_count() == 0


def test_messages_of_a_queue_that_have_no_ids_are_not_lost_with_a_killed_driver(
    queue_place: QueuePlace, url: str, client: Any, namespace: str
) -> None:
    queue_place.with_ids = False
    queue_place.fill([number // 4 for number in range(COUNT)])  # equal bodies, four times each
    worker = Worker(url, client, namespace, queue_place.spec)
    kill_in_the_middle(worker)

    finish(worker)

    assert min(Counter(worker.processed()).values()) >= 4
    assert len(set(worker.processed())) == COUNT // 4
    assert queue_place.unfinished() == 0
