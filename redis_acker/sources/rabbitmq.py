"""Messages from a RabbitMQ queue."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis_acker.bolt import TaskContext
from redis_acker.errors import ServerUnavailable
from redis_acker.message_ids import MessageId
from redis_acker.sources.amqp import AmqpConsumer, ConnectionLost
from redis_acker.sources.body_ids import BodyIds, is_body_id
from redis_acker.sources.records import WHOLE, read_record
from redis_acker.spout import Message, Spout

_PAUSE_S = 0.5  # between attempts to connect

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Delivery:
    message: Message
    tags: list[int]
    """Several, where messages of the same id are in the queue."""


class RabbitMqSpout(Spout):
    """Hands out the messages of a queue. Acks them when they are complete, rejects them without requeue when dead.

    The id is the message_id property, or a header. With it, no message that was completed is processed again after a
    restart. Without, the id is made from the body and a number among equal bodies: attempts are counted, none is
    lost, but what completes while the connection is down may be processed again.

    A failed message stays with this task for its replay, and RabbitMQ takes it back only with the connection.
    """

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        id_header: str | None = None,
        decode: Callable[[bytes], Any] = bytes.decode,
        fields: Sequence[str] | None = None,
    ) -> None:
        """url: amqp://user:password@host:port/vhost, or amqps://. The queue must exist.

        decode makes the value of a message from its body: text, unless it is json.loads or a function of your own.
        fields: names of members of that value, one value each. A body that cannot be decoded becomes a dead letter.
        """
        self.fields = WHOLE if fields is None else tuple(fields)
        self._names, self._decode, self._id_header = fields, decode, id_header
        self._url, self._queue = url, queue
        self._consumer: AmqpConsumer | None = None

    def open(self, context: TaskContext) -> None:
        self._arrived: deque[tuple[int, str, bytes]] = deque()
        self._live: dict[MessageId, _Delivery] = {}
        self._again: dict[MessageId, None] = {}
        self._settled: dict[MessageId, tuple[list[int], bool]] = {}
        self._lost: dict[MessageId, bool | None] = {}
        """Unfinished when a connection was lost. Since then acked (True) or dead (False): said when they come again."""
        self._body_ids = BodyIds()
        self._consumer = AmqpConsumer(self._url, self._queue, self._on_message)
        self._consumer.connect()

    def next_batch(self, limit: int) -> list[Message]:
        again = list(self._again)[:limit]
        batch = [self._live[one].message for one in again]
        for one in again:
            del self._again[one]
        while len(batch) < limit and (self._arrived or (not batch and self._receive(limit))):
            if message := self._take(*self._arrived.popleft()):
                batch.append(message)
        self.commit()
        return batch

    def ack(self, message_id: MessageId) -> None:
        self._settle(message_id, True)

    def dead(self, message_id: MessageId) -> None:
        self._settle(message_id, False)

    def fail(self, message_id: MessageId) -> None:
        if message_id in self._live:  # otherwise RabbitMQ delivers it again
            self._again[message_id] = None

    def commit(self) -> None:
        if not self._settled:
            return
        acks = [tag for tags, is_ack in self._settled.values() if is_ack for tag in tags]
        rejects = [tag for tags, is_ack in self._settled.values() if not is_ack for tag in tags]
        if self._online(lambda consumer: consumer.settle(acks, rejects)):
            for one in self._settled:
                self._body_ids.give_back(one)
            self._settled.clear()

    def keep_alive(self) -> None:
        self._online(AmqpConsumer.keep_alive)

    def close(self) -> None:
        if self._consumer:
            self._consumer.close()

    def _on_message(self, tag: int, properties: Any, body: bytes) -> None:
        found = (properties.headers or {}).get(self._id_header) if self._id_header else properties.message_id
        self._arrived.append((tag, str(found or ""), body))

    def _take(self, tag: int, message_id: str, body: bytes) -> Message | None:
        """The message to be handed out; None if it was finished before, or is in work already."""
        message_id = message_id or self._body_ids.take(body)
        if delivery := self._live.get(message_id):
            delivery.tags.append(tag)
            return None
        is_ack = self._lost.pop(message_id, None)
        if is_ack is not None:
            self._settled[message_id] = [tag], is_ack
            return None
        message = read_record(message_id, body, self._decode, self._names, f"Message {message_id} of {self._queue!r}")
        self._live[message_id] = _Delivery(message, [tag])
        return message

    def _settle(self, message_id: MessageId, is_ack: bool) -> None:
        if delivery := self._live.pop(message_id, None):
            self._again.pop(message_id, None)
            self._settled[message_id] = delivery.tags, is_ack
        elif message_id in self._lost:
            self._lost[message_id] = is_ack
        else:
            self._body_ids.spend(message_id)

    def _receive(self, limit: int) -> bool:
        """Waits a moment for messages. Connects again if need be."""
        assert self._consumer is not None
        if not self._consumer.is_connected:
            try:
                self._consumer.connect()
            except ServerUnavailable:
                time.sleep(_PAUSE_S)
                raise
        self.commit()  # RabbitMQ counts as unacked what it has not heard of
        if not self._online(lambda consumer: consumer.receive(len(self._live) + limit)):
            raise ServerUnavailable(f"The queue {self._queue!r} cannot be read just now.")
        return bool(self._arrived)

    def _online(self, call: Callable[[AmqpConsumer], None]) -> bool:
        """Calls the consumer. False if the connection is lost: RabbitMQ then delivers all again that is unfinished."""
        if self._consumer is None or not self._consumer.is_connected:
            return False
        try:
            call(self._consumer)
        except ConnectionLost as error:
            log.warning("%s It is made again.", error)
            self._forget_deliveries()
            return False
        return True

    def _forget_deliveries(self) -> None:
        self._body_ids.start_again(self._live)
        self._lost |= dict.fromkeys(self._live)
        # It is not known whether RabbitMQ has heard of these; an equal body could be that of another message.
        self._lost |= {one: is_ack for one, (_, is_ack) in self._settled.items() if not is_body_id(one)}
        self._live, self._again, self._settled = {}, {}, {}
        self._arrived.clear()
