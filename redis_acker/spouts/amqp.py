"""A connection to RabbitMQ that consumes one queue."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

try:
    import pika  # type: ignore[import-untyped]
    from pika import exceptions as amqp_errors
except ImportError:
    raise ImportError("RabbitMqSpout needs pika: run `pip install 'redis-acker[rabbitmq]'`.") from None

from redis_acker.errors import AccessDenied, BadInput, ServerUnavailable

MOST_UNACKED = 65_535
"""The largest prefetch that the protocol allows."""

_CONNECT_S = 3.0  # shorter than a driver's lease
_ARRIVAL_S = 1.0
_POLL_S = 0.01
_QUIET_S = 0.2
_NO_QUEUE = 404
_DENIED = (
    amqp_errors.ProbableAuthenticationError,
    amqp_errors.ProbableAccessDeniedError,
    amqp_errors.AuthenticationError,
)


class ConnectionLost(ServerUnavailable):
    """Raised when the connection breaks. RabbitMQ delivers again whatever was not acknowledged."""


class AmqpConsumer:
    """Consumes a queue. After ConnectionLost, connect() starts over."""

    def __init__(self, url: str, queue: str, on_message: Callable[[int, Any, bytes], None]) -> None:
        """on_message gets the delivery tag, properties and body."""
        try:
            if not url.startswith(("amqp://", "amqps://")):
                raise ValueError("it starts with neither amqp:// nor amqps://")
            self._parameters = pika.URLParameters(url)
        except (ValueError, TypeError, AttributeError):  # which may quote part of a password
            raise BadInput(
                "What was given is not an AMQP URL, and is not shown because it may hold a password: use "
                "amqp://user:password@host:port/vhost."
            ) from None
        if "socket_timeout" not in url:
            self._parameters.socket_timeout = _CONNECT_S
            self._parameters.stack_timeout = 2 * _CONNECT_S
        self._name = f"RabbitMQ at {self._parameters.host}:{self._parameters.port}"
        self._queue = queue
        self._on_message = on_message
        self._connection: Any = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def connect(self) -> None:
        try:
            self._connection = pika.BlockingConnection(self._parameters)
            self._channel = self._connection.channel()
            self._channel.add_on_cancel_callback(_refuse)
            self._count_ready()
        except _DENIED as error:
            raise AccessDenied(f"{self._name} refuses access ({_why(error)}): check user, password, vhost.") from None
        except (amqp_errors.ConnectionClosedByBroker, amqp_errors.ChannelClosedByBroker) as error:
            self.close()
            if error.reply_code == _NO_QUEUE:
                raise BadInput(f"{self._name} has no queue {self._queue!r}: declare it first.") from None
            raise AccessDenied(f"{self._name} refuses access ({error.reply_text}): check vhost and rights.") from None
        except (amqp_errors.AMQPError, OSError) as error:
            self.close()
            raise ServerUnavailable(
                f"{self._name} cannot be reached ({_why(error)}): check that it runs and the URL is right."
            ) from None
        self._prefetch, self._consumer_tag = 0, ""

    def receive(self, unacked: int) -> None:
        """Receives what has arrived, and waits for it if the queue is not empty. Up to this many may be unacked."""
        with self._guard():
            if min(unacked, MOST_UNACKED) > self._prefetch:
                self._consume(min(max(unacked, 2 * self._prefetch), MOST_UNACKED))
            self._receive(_POLL_S)
            if not self._arrived:
                self._receive(_ARRIVAL_S if self._count_ready() else 0)

    def keep_alive(self) -> None:
        """Answers heartbeats, at most a few times a second."""
        if time.monotonic() - self._last_io > _QUIET_S:
            with self._guard():
                self._receive(0)

    def count(self) -> int:
        """Messages in the queue that no consumer has been sent."""
        with self._guard():
            return self._count_ready()

    def acknowledge(self, acks: Iterable[int], rejects: Iterable[int]) -> None:
        """Acks deliveries, or rejects them for good. When this returns, RabbitMQ knows."""
        with self._guard():
            for tag in acks:
                self._channel.basic_ack(tag)
            for tag in rejects:
                self._channel.basic_reject(tag, requeue=False)
            self._count_ready()  # waits for a reply, which follows what was sent before

    def close(self) -> None:
        """Closes the connection. Whatever is not acknowledged goes back to the queue."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            with contextlib.suppress(amqp_errors.AMQPError, OSError):
                connection.close()

    def _consume(self, prefetch: int) -> None:
        if self._consumer_tag:
            self._channel.basic_cancel(self._consumer_tag)
        self._channel.basic_qos(prefetch_count=prefetch)
        self._consumer_tag = self._channel.basic_consume(self._queue, self._deliver)
        self._prefetch = prefetch

    def _deliver(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._arrived = True
        self._on_message(method.delivery_tag, properties, body)

    def _receive(self, wait_s: float) -> None:
        self._arrived = False
        self._connection.process_data_events(wait_s)
        self._last_io = time.monotonic()

    def _count_ready(self) -> int:
        declared = self._channel.queue_declare(self._queue, passive=True)
        self._last_io = time.monotonic()
        count: int = declared.method.message_count
        return count

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (amqp_errors.AMQPError, OSError) as error:
            self.close()
            raise ConnectionLost(f"The connection to {self._name} was lost ({_why(error)}).") from None


def _refuse(method: Any) -> None:
    """Called when RabbitMQ cancels the consumer."""
    raise amqp_errors.ConsumerCancelled("the queue is gone or has moved")


def _why(error: BaseException) -> str:
    """The text of the innermost error: pika wraps it several times."""
    while True:
        inner = getattr(error, "exception", None) or next(iter(error.args), None)
        if not isinstance(inner, BaseException):
            return str(error) or type(error).__name__
        error = inner
