"""Messages from a RabbitMQ queue."""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from redis_acker.components.component import TaskContext
from redis_acker.components.spout import Message, Spout
from redis_acker.errors import ServerUnavailable
from redis_acker.spouts.amqp import AmqpConsumer, ConnectionLost
from redis_acker.spouts.records import WHOLE, read_record
from redis_acker.store.message_ids import MessageId

_PAUSE_S = 0.5  # between attempts to connect
_PREFIX = "body:"  # of ids that are made from the body

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Unacked:
    message: Message
    tags: list[int]
    """Several if the queue holds messages with the same id."""


class RabbitMqSpout(Spout):
    """Hands out the messages of a queue. Acks them when they are complete, rejects them without requeue when dead.

    The id is the message_id property, or a header. With it, no completed message is processed again after a restart,
    unless a second driver is killed before RabbitMQ has noticed the death of the first and delivered again what it had.
    Without, the id is made from the body and a number among equal bodies: attempts are counted and none is lost, but
    what completes while the connection is down may be processed again.

    A failed message stays with this task for its replay. RabbitMQ gets it back only when the connection closes.
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

        decode turns a body into the value of the message: bytes.decode for text, json.loads, or a function of your own.
        fields: names of members of that value, one value each. A body that cannot be decoded becomes a dead letter.
        """
        self.fields = WHOLE if fields is None else fields
        self._names, self._decode, self._id_header = fields, decode, id_header
        self._url, self._queue = url, queue
        self._consumer: AmqpConsumer | None = None

    def open(self, context: TaskContext) -> None:
        self._arrived: deque[tuple[int, str, bytes]] = deque()
        self._live: dict[MessageId, _Unacked] = {}
        self._again: dict[MessageId, None] = {}
        self._finished: dict[MessageId, tuple[list[int], bool]] = {}
        self._lost: dict[MessageId, bool | None] = {}
        """Unfinished when the connection was lost. True or False: acked or dead since, which RabbitMQ is told when it
        delivers them again."""
        self._body_ids = BodyIds()
        self._consumer = AmqpConsumer(self._url, self._queue, self._on_message)
        self._consumer.connect()

    def next_batch(self, limit: int) -> list[Message]:
        again = list(self._again)[:limit]
        batch = [self._live[one].message for one in again]
        for one in again:
            del self._again[one]
        while len(batch) < limit and (self._arrived or (not batch and self._receive(limit))):
            if message := self._accept(*self._arrived.popleft()):
                batch.append(message)
        self.commit()
        return batch

    def ack(self, message_id: MessageId) -> None:
        self._finish(message_id, True)

    def dead(self, message_id: MessageId) -> None:
        self._finish(message_id, False)

    def fail(self, message_id: MessageId) -> None:
        if message_id in self._live:  # otherwise RabbitMQ delivers it again
            self._again[message_id] = None

    def commit(self) -> None:
        if not self._finished:
            return
        acks = [tag for tags, is_ack in self._finished.values() if is_ack for tag in tags]
        rejects = [tag for tags, is_ack in self._finished.values() if not is_ack for tag in tags]
        if self._online(lambda consumer: consumer.acknowledge(acks, rejects)):
            for one in self._finished:
                self._body_ids.release(one)
            self._finished.clear()

    def keep_alive(self) -> None:
        self._online(AmqpConsumer.keep_alive)

    def lag(self) -> int | None:
        """What is in the queue, and what has arrived from there."""
        found: list[int] = []
        self._online(lambda consumer: found.append(consumer.count()))
        return found[0] + len(self._arrived) if found else None

    def close(self) -> None:
        if self._consumer:
            self._consumer.close()

    def _on_message(self, tag: int, properties: Any, body: bytes) -> None:
        found = (properties.headers or {}).get(self._id_header) if self._id_header else properties.message_id
        self._arrived.append((tag, str(found or ""), body))

    def _accept(self, tag: int, message_id: str, body: bytes) -> Message | None:
        """The message to hand out; None if it was finished before or is in work already."""
        message_id = message_id or self._body_ids.assign(body)
        if delivery := self._live.get(message_id):
            delivery.tags.append(tag)
            return None
        is_ack = self._lost.pop(message_id, None)
        if is_ack is not None:
            self._finished[message_id] = [tag], is_ack
            return None
        message = read_record(message_id, body, self._decode, self._names, f"Message {message_id} of {self._queue!r}")
        self._live[message_id] = _Unacked(message, [tag])
        return message

    def _finish(self, message_id: MessageId, is_ack: bool) -> None:
        if delivery := self._live.pop(message_id, None):
            self._again.pop(message_id, None)
            self._finished[message_id] = delivery.tags, is_ack
        elif message_id in self._lost:
            self._lost[message_id] = is_ack
        else:
            self._body_ids.retire(message_id)

    def _receive(self, limit: int) -> bool:
        """Waits a moment for messages. Reconnects if necessary."""
        assert self._consumer is not None
        if not self._consumer.is_connected:
            try:
                self._consumer.connect()
            except ServerUnavailable:
                time.sleep(_PAUSE_S)
                raise
        self.commit()  # until it hears of acks, RabbitMQ counts them against the prefetch
        if not self._online(lambda consumer: consumer.receive(len(self._live) + limit)):
            raise ServerUnavailable(f"The queue {self._queue!r} cannot be read right now.")
        return bool(self._arrived)

    def _online(self, call: Callable[[AmqpConsumer], None]) -> bool:
        """Calls the consumer. False if the connection is lost: RabbitMQ then delivers everything unfinished again."""
        if self._consumer is None or not self._consumer.is_connected:
            return False
        try:
            call(self._consumer)
        except ConnectionLost as error:
            log.warning("%s It will be made again.", error)
            self._forget_deliveries()
            return False
        return True

    def _forget_deliveries(self) -> None:
        self._body_ids.start_over(self._live)
        self._lost |= dict.fromkeys(self._live)
        # RabbitMQ may not have heard of these. With an id made from the body, an equal body could be another message.
        self._lost |= {one: is_ack for one, (_, is_ack) in self._finished.items() if not is_body_id(one)}
        self._live, self._again, self._finished = {}, {}, {}
        self._arrived.clear()


def is_body_id(message_id: MessageId) -> bool:
    return isinstance(message_id, str) and message_id.startswith(_PREFIX)


class BodyIds:
    """An id is the hash of the body, and the lowest number that no other message with that body has.

    Messages with equal bodies are interchangeable. It does not matter which of them gets which number after a restart,
    as long as the completion of a number acks one of them, once.
    """

    def __init__(self) -> None:
        self._used: dict[str, int] = {}
        self._free: dict[str, list[int]] = {}
        self._retired: set[MessageId] = set()

    def assign(self, body: bytes) -> str:
        digest = blake2b(body, digest_size=16).hexdigest()
        while True:
            if free := self._free.get(digest):
                number = heapq.heappop(free)
            else:
                number = self._used.get(digest, 0)
                self._used[digest] = number + 1
            message_id = f"{_PREFIX}{digest}:{number}"
            if message_id not in self._retired:
                return message_id

    def release(self, message_id: MessageId) -> None:
        """The source has forgotten the message with this id: another message may get it."""
        if is_body_id(message_id):
            digest = self._add_free(message_id)
            if len(self._free[digest]) == self._used[digest]:
                del self._free[digest], self._used[digest]

    def start_over(self, unfinished: Iterable[MessageId]) -> None:
        """All messages will be delivered again. Unfinished ones get their old ids before any new id is used."""
        self._free = {}
        digests = {self._add_free(one) for one in unfinished if is_body_id(one)}
        self._used = {digest: number for digest, number in self._used.items() if digest in digests}

    def retire(self, message_id: MessageId) -> None:
        """Never assigns this id again: it was finished before its message came, which the source may have forgotten."""
        if is_body_id(message_id):
            self._retired.add(message_id)

    def _add_free(self, message_id: MessageId) -> str:
        _, digest, number = str(message_id).split(":")
        heapq.heappush(self._free.setdefault(digest, []), int(number))
        return digest
