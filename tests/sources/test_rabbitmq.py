"""RabbitMqSpout: ids, dead letter exchanges, heartbeats and connections that break."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Acker, AckerError, FailedTuple, LocalRunner, TaskContext
from redis_acker.errors import AccessDenied, BadInput, ServerUnavailable
from redis_acker.message_ids import MessageId
from redis_acker.sources.body_ids import BodyIds
from redis_acker.sources.rabbitmq import RabbitMqSpout
from tests.proxy import CuttingProxy
from tests.rabbitmq import RabbitMq
from tests.sources.kit import PATIENCE_S, Book, Keep, Work, ack, dead_letters, run_until_idle, running
from tests.sources.places import QueuePlace
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


class Gate(CuttingProxy):
    """A way to the broker that can be shut."""

    def shut(self) -> None:
        self._open_target, self._target = self._target, ("127.0.0.1", 1)
        self.cut_all_connections()

    def open(self) -> None:
        self._target = self._open_target


@pytest.fixture
def proxy(rabbitmq: RabbitMq) -> Iterator[Gate]:
    found = Gate("127.0.0.1", rabbitmq.port)
    yield found
    found.stop()


def through(proxy: Gate, place: QueuePlace, options: str = "", **more: Any) -> RabbitMqSpout:
    return RabbitMqSpout(RabbitMq.url_at(proxy.port, options), place.queue, **more)


def new_spout(place: QueuePlace, **options: Any) -> RabbitMqSpout:
    return RabbitMqSpout(place.broker.url, place.queue, **options)


def opened(spout: RabbitMqSpout) -> RabbitMqSpout:
    spout.open(TaskContext("source", 0, 1))
    return spout


def wait_for_error(runner: LocalRunner) -> None:
    """Raises what ended the run."""
    wait_until(lambda: runner.wait_until_idle(timeout_s=0) and False)


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
    first, second, third = (ids.take(b"same") for _ in range(3))
    ids.give_back(first)
    assert ids.take(b"same") == first
    ids.spend(third)
    unfinished: list[MessageId] = [second, third]
    ids.start_again(unfinished)
    assert ids.take(b"same") == second
    assert ids.take(b"same") not in (first, second, third)
    assert len({first, second, third, ids.take(b"other")}) == 4


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


# -- connections ---------------------------------------------------------------------------------------------------


def test_a_cut_connection_loses_nothing_and_processes_nothing_twice(
    queue_place: QueuePlace, proxy: Gate, acker: Acker
) -> None:
    queue_place.fill(range(2000))
    book, cuts = Book(), iter(range(200, 2000, 400))

    def cut_now_and_then(value: Any, time: int) -> None:
        if len(book) >= next_cut[0]:
            next_cut[0] = next(cuts, 10**9)
            proxy.cut_all_connections()

    next_cut = [next(cuts)]
    spout = through(proxy, queue_place, decode=json.loads, fields=("number",))
    run_until_idle(acker, spout, Work(book, cut_now_and_then), max_pending=100)

    assert next_cut == [10**9]
    assert book.counts() == dict.fromkeys(range(2000), 1)
    assert queue_place.unfinished() == 0


def test_what_completes_while_the_connection_is_cut_is_acked_when_it_is_delivered_again(
    queue_place: QueuePlace, proxy: Gate, acker: Acker
) -> None:
    queue_place.fill(range(20))
    bolt = Keep(Book())
    with running(acker, through(proxy, queue_place), bolt) as runner:
        wait_until(lambda: len(bolt.book) == 20)
        proxy.shut()
        ack(acker, bolt.tuples[:10])
        wait_until(lambda: runner.drivers[0].counters.completed == 10)
        assert not runner.drivers[0].is_idle()
        wait_until(lambda: queue_place.broker.count(queue_place.queue) == 20)
        proxy.open()
        # Ten are acked, ten are in work under their new delivery tags.
        wait_until(lambda: queue_place.broker.count(queue_place.queue) == 0)
        ack(acker, bolt.tuples[10:])
        assert runner.wait_until_idle(timeout_s=PATIENCE_S)

    assert len(bolt.book) == 20
    assert queue_place.unfinished() == 0


def test_what_fails_while_the_connection_is_cut_is_replayed_when_it_is_delivered_again(
    queue_place: QueuePlace, proxy: Gate, acker: Acker
) -> None:
    queue_place.fill([1])
    bolt = Keep(Book())
    with running(acker, through(proxy, queue_place), bolt) as runner:
        wait_until(lambda: len(bolt.book) == 1)
        proxy.cut_all_connections()
        acker.fail(list(bolt.tuples[0].anchors))
        wait_until(lambda: len(bolt.book) == 2)
        ack(acker, bolt.tuples[1:])
        assert runner.wait_until_idle(timeout_s=PATIENCE_S)
        assert runner.drivers[0].counters.replayed == 1

    assert queue_place.unfinished() == 0


def test_a_lost_ack_is_given_again_and_the_message_not_processed_again(
    queue_place: QueuePlace, proxy: Gate, acker: Acker
) -> None:
    """The connection is cut when acks are on their way: it is not known whether RabbitMQ has got them."""
    queue_place.fill(range(100))
    book = Book()
    proxy.cut_replies(3, after=3, command=queue_place.queue.encode())

    run_until_idle(acker, through(proxy, queue_place), Work(book), max_pending=10)

    assert proxy.cuts == 3
    assert sum(book.counts().values()) == 100
    assert queue_place.unfinished() == 0


def test_heartbeats_are_answered_while_there_is_no_room_for_messages(
    queue_place: QueuePlace, proxy: Gate, acker: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    queue_place.fill(range(10))
    bolt = Keep(Book())
    with running(acker, through(proxy, queue_place, "?heartbeat=1"), bolt, max_pending=5) as runner:
        wait_until(lambda: len(bolt.book) == 5)
        # RabbitMQ ends a connection that is silent for twice the heartbeat.
        wait_until(lambda: runner.drivers[0].counters.waited > 400, 20)
        assert "was lost" not in caplog.text
        assert queue_place.broker.consumers(queue_place.queue) == 1


def test_a_run_that_begins_with_little_room_reads_on_with_more(queue_place: QueuePlace, acker: Acker) -> None:
    queue_place.fill(range(100))
    bolt = Keep(Book())
    with running(acker, new_spout(queue_place), bolt, max_pending=10):
        wait_until(lambda: len(bolt.book) == 10)
    book = Book()

    with running(acker, new_spout(queue_place), Work(book), max_pending=10) as runner:
        ack(acker, bolt.tuples[:1])  # room for one
        wait_until(lambda: len(book) >= 1)
        ack(acker, bolt.tuples[1:])
        assert runner.wait_until_idle(timeout_s=PATIENCE_S)

    assert len(book) == 90
    assert queue_place.unfinished() == 0


def test_a_queue_that_is_made_anew_is_read_on(queue_place: QueuePlace, acker: Acker) -> None:
    queue_place.broker.publish(queue_place.queue, [("m1", b"1")])
    bolt = Keep(Book())
    with running(acker, new_spout(queue_place), bolt, max_pending=1) as runner:
        wait_until(lambda: len(bolt.book) == 1)
        queue_place.broker.delete(queue_place.queue)
        queue_place.broker.declare(queue_place.queue)
        queue_place.broker.publish(queue_place.queue, [("m2", b"2")])
        ack(acker, bolt.tuples)
        wait_until(lambda: len(bolt.book) == 2)
        ack(acker, bolt.tuples[1:])
        assert runner.wait_until_idle(timeout_s=PATIENCE_S)

    assert queue_place.unfinished() == 0


def test_a_queue_that_is_deleted_ends_the_run_with_its_name(rabbitmq: RabbitMq, namespace: str, acker: Acker) -> None:
    rabbitmq.declare(f"{namespace}-queue")
    with running(acker, RabbitMqSpout(rabbitmq.url, f"{namespace}-queue"), Work(Book())) as runner:
        wait_until(lambda: rabbitmq.consumers(f"{namespace}-queue") == 1)
        rabbitmq.delete(f"{namespace}-queue")
        with pytest.raises(BadInput, match=rf"RabbitMQ at 127\.0\.0\.1:\d+ has no queue '{namespace}-queue'"):
            wait_for_error(runner)


# -- what the user got wrong ---------------------------------------------------------------------------------------


def error_of(acker: Acker, spout: RabbitMqSpout) -> AckerError:
    with running(acker, spout, Work(Book())) as runner, pytest.raises(AckerError) as caught:
        wait_for_error(runner)
    return caught.value


def test_without_pika_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['pika'] = None; import redis_acker.sources.rabbitmq"

    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    last_line = ran.stderr.splitlines()[-1]
    assert last_line == "ImportError: RabbitMqSpout needs pika: run `pip install 'redis-acker[rabbitmq]'`."


def test_a_wrong_url_is_named_without_its_password(acker: Acker) -> None:
    error = error_of(acker, RabbitMqSpout("http://guest:secret@127.0.0.1/", "q"))

    assert isinstance(error, BadInput)
    assert str(error) == ("'http://guest:***@127.0.0.1/' is no AMQP URL: use amqp://user:password@host:port/vhost.")


def test_a_broker_that_cannot_be_reached_is_named(acker: Acker) -> None:
    error = error_of(acker, RabbitMqSpout("amqp://127.0.0.1:1/", "q"))

    assert isinstance(error, ServerUnavailable)
    assert str(error) == (
        "RabbitMQ at 127.0.0.1:1 cannot be reached ([Errno 111] Connection refused): check that it runs and the URL "
        "is right."
    )


def test_a_queue_that_does_not_exist_is_named(rabbitmq: RabbitMq, acker: Acker) -> None:
    error = error_of(acker, RabbitMqSpout(rabbitmq.url, "nowhere"))

    assert isinstance(error, BadInput)
    assert str(error) == f"RabbitMQ at 127.0.0.1:{rabbitmq.port} has no queue 'nowhere': declare it first."


@pytest.mark.parametrize(("login", "vhost"), [("guest:wrong", "%2F"), ("guest:guest", "nowhere")])
def test_a_login_that_is_refused_says_so(rabbitmq: RabbitMq, acker: Acker, login: str, vhost: str) -> None:
    error = error_of(acker, RabbitMqSpout(f"amqp://{login}@127.0.0.1:{rabbitmq.port}/{vhost}", "q"))

    assert isinstance(error, AccessDenied)
    assert str(error).startswith(f"RabbitMQ at 127.0.0.1:{rabbitmq.port} refuses access (")
    assert "\n" not in str(error)
