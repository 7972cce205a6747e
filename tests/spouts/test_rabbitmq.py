"""RabbitMqSpout: values, ids and dead letter exchanges."""

import json
from functools import partial
from typing import Any

from redis_acker import Acker, FailedTuple, TaskContext
from redis_acker.spouts.rabbitmq import BodyIds, RabbitMqSpout
from redis_acker.store.message_ids import MessageId
from tests.rabbitmq import RabbitMq
from tests.spouts.kit import PATIENCE_S, Book, Keep, Work, ack, dead_letters, run_until_idle, running
from tests.spouts.places import QueuePlace
from tests.waiting import wait_until


def new_spout(place: QueuePlace, **options: Any) -> RabbitMqSpout:
    return RabbitMqSpout(place.broker.url, place.queue, **options)


def opened(spout: RabbitMqSpout) -> RabbitMqSpout:
    spout.open(TaskContext("source", 0, 1))
    return spout


def take(spout: RabbitMqSpout, count: int) -> list[Any]:
    found: list[Any] = []

    def all_are_there() -> bool:
        found.extend(spout.next_batch(100))
        return len(found) >= count

    wait_until(all_are_there)
    return found


# -- values and ids ------------------------------------------------------------------------------------------------


def test_a_body_is_a_text_and_its_id_the_message_id(queue_place: QueuePlace) -> None:
    queue_place.broker.publish(queue_place.queue, [("m1", "grün".encode())])
    spout = opened(new_spout(queue_place))

    [message] = take(spout, 1)

    assert (message.id, message.values) == ("m1", ["grün"])
    spout.close()


def test_a_body_is_decoded_as_asked_for(queue_place: QueuePlace, acker: Acker) -> None:
    queue_place.broker.publish(queue_place.queue, [("m1", b'{"a": 1, "b": 2}'), ("m2", b"{"), ("m3", b"\xff")])
    book = Book()

    run_until_idle(acker, new_spout(queue_place, decode=json.loads, fields=("b", "a")), Work(book))

    assert book.counts() == {2: 1}
    errors = {one.message_id: one.history[0].error for one in dead_letters(acker)}
    assert errors["m2"].startswith(f"Message m2 of {queue_place.queue!r} cannot be read: JSONDecodeError")
    assert set(errors) == {"m2", "m3"}
    assert queue_place.unfinished() == 0


def test_the_id_may_be_in_a_header(queue_place: QueuePlace) -> None:
    queue_place.broker.publish(queue_place.queue, [("m1", b"1")], headers={"x-id": 17})
    spout = opened(new_spout(queue_place, id_header="x-id"))

    assert [one.id for one in take(spout, 1)] == ["17"]
    spout.close()


def test_two_messages_of_one_id_are_one(queue_place: QueuePlace, acker: Acker) -> None:
    queue_place.broker.publish(queue_place.queue, [("m1", b"1"), ("m1", b"1"), ("m2", b"2")])
    bolt = Keep(Book())

    with running(acker, new_spout(queue_place), bolt) as runner:
        wait_until(lambda: len(bolt.book) == 2)
        ack(acker, bolt.tuples)
        assert runner.wait_until_idle(timeout_s=PATIENCE_S)

    assert bolt.book.counts() == {"1": 1, "2": 1}
    assert queue_place.unfinished() == 0


def test_equal_messages_without_ids_are_each_processed(queue_place: QueuePlace, acker: Acker) -> None:
    queue_place.broker.publish(queue_place.queue, [(None, b"same")] * 300 + [(None, b"other")])
    book = Book()

    run_until_idle(acker, new_spout(queue_place), Work(book), max_pending=50)

    assert book.counts() == {"same": 300, "other": 1}
    assert queue_place.unfinished() == 0


def test_attempts_at_messages_without_ids_are_counted_across_restarts(queue_place: QueuePlace, acker: Acker) -> None:
    def fail(value: Any, time: int) -> None:
        raise RuntimeError("no")

    queue_place.broker.publish(queue_place.queue, [(None, b"poison")] * 2)
    book = Book()
    with running(acker, new_spout(queue_place), Work(book, fail)) as runner:
        wait_until(lambda: runner.drivers[0].counters.failed >= 2)

    run_until_idle(acker, new_spout(queue_place), Work(book, fail))

    assert [[one.attempt for one in letter.history] for letter in dead_letters(acker)] == [[1, 2, 3], [1, 2, 3]]
    assert book.counts() == {"poison": 6}
    assert queue_place.unfinished() == 0


def test_a_new_message_is_processed_though_an_equal_one_was_completed_before_the_restart(
    queue_place: QueuePlace, acker: Acker
) -> None:
    """RabbitMQ has heard of the completion, the store was not told so: as after a kill in between."""
    queue_place.broker.publish(queue_place.queue, [(None, b"same")])
    bolt = Keep(Book())
    with running(acker, new_spout(queue_place), bolt):
        wait_until(lambda: len(bolt.book) == 1)
    assert queue_place.broker.take_all(queue_place.queue) == [(None, b"same")]
    ack(acker, bolt.tuples)
    queue_place.broker.publish(queue_place.queue, [(None, b"same")])
    book = Book()

    run_until_idle(acker, new_spout(queue_place), Work(book))

    assert book.counts() == {"same": 1}
    assert queue_place.unfinished() == 0


def test_equal_bodies_get_the_lowest_free_number() -> None:
    ids = BodyIds()
    first, second, third = (ids.assign(b"same") for _ in range(3))
    ids.release(first)
    assert ids.assign(b"same") == first
    ids.retire(third)
    unfinished: list[MessageId] = [second, third]
    ids.start_over(unfinished)
    assert ids.assign(b"same") == second
    assert ids.assign(b"same") not in (first, second, third)
    assert len({first, second, third, ids.assign(b"other")}) == 4


# -- dead letters --------------------------------------------------------------------------------------------------


def test_a_dead_message_goes_to_the_dead_letter_exchange(rabbitmq: RabbitMq, namespace: str, acker: Acker) -> None:
    def refuse(value: Any, time: int) -> None:
        if value == "bad":
            raise FailedTuple("no", fatal=True)

    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{namespace}-dead"}
    rabbitmq.declare(f"{namespace}-dead")
    rabbitmq.declare(f"{namespace}-queue", **arguments)
    rabbitmq.publish(f"{namespace}-queue", [("m1", b"good"), ("m2", b"bad")])

    run_until_idle(acker, RabbitMqSpout(rabbitmq.url, f"{namespace}-queue"), Work(Book(), refuse))

    wait_until(lambda: rabbitmq.count(f"{namespace}-dead") == 1)
    assert rabbitmq.take_all(f"{namespace}-dead") == [("m2", b"bad")]
    assert rabbitmq.count(f"{namespace}-queue") == 0
    for queue in (f"{namespace}-queue", f"{namespace}-dead"):
        rabbitmq.delete(queue)


def test_a_dead_message_that_is_sent_again_is_processed_again(queue_place: QueuePlace, acker: Acker) -> None:
    def refuse_once(value: Any, time: int) -> None:
        if time == 1:
            raise FailedTuple("no", fatal=True)

    book = Book()
    with running(acker, new_spout(queue_place), Work(book, refuse_once)) as runner:
        for times in (1, 2):
            queue_place.broker.publish(queue_place.queue, [("m1", b"1")])
            wait_until(partial(lambda wanted: book.counts() == {"1": wanted}, times))
        assert runner.wait_until_idle(timeout_s=PATIENCE_S)

    assert queue_place.unfinished() == 0
