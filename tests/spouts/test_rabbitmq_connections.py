"""RabbitMqSpout: connections that break, and brokers that cannot be reached."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Acker, AckerError, LocalRunner
from redis_acker.errors import AccessDenied, BadInput, ServerUnavailable
from redis_acker.spouts.rabbitmq import RabbitMqSpout
from tests.proxy import CuttingProxy
from tests.rabbitmq import RabbitMq
from tests.spouts.kit import PATIENCE_S, Book, Keep, Work, ack, run_until_idle, running
from tests.spouts.places import QueuePlace
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


def wait_for_error(runner: LocalRunner) -> None:
    """Raises what ended the run."""
    wait_until(lambda: runner.wait_until_idle(timeout_s=0) and False)


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
        wait_until(lambda: runner.drivers[0].counters.acked == 10)
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
        wait_until(lambda: runner.drivers[0].counters.waited > 80, 20)
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
    code = "import sys; sys.modules['pika'] = None; import redis_acker.spouts.rabbitmq"

    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    last_line = ran.stderr.splitlines()[-1]
    assert last_line == "ImportError: RabbitMqSpout needs pika: run `pip install 'redis-acker[rabbitmq]'`."


def test_a_wrong_url_is_named_without_its_password(acker: Acker) -> None:
    error = error_of(acker, RabbitMqSpout("http://guest:secret@127.0.0.1/", "q"))

    assert isinstance(error, BadInput)
    assert "is not an AMQP URL, and is not shown because it may hold a password: use amqp://" in str(error)
    assert "secret" not in str(error)


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
