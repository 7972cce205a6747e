"""Messages from a Kafka topic."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
except ImportError:
    raise ImportError("KafkaSpout needs confluent-kafka: run `pip install 'redis-acker[kafka]'`.") from None

from redis_acker.components.component import TaskContext
from redis_acker.components.spout import Message, Spout
from redis_acker.components.tuples import Anchors
from redis_acker.errors import BadInput, ServerUnavailable
from redis_acker.spouts.offsets import FinishedOffsets
from redis_acker.spouts.records import WHOLE, read_record
from redis_acker.store.message_ids import MessageId

ANCHORS_HEADER = "redis-acker-anchors"

_OURS = ("bootstrap.servers", "group.id", "enable.auto.commit", "enable.partition.eof", "error_cb")
_FETCH_S = 0.05
_ARRIVAL_S = 1.0  # how long a batch waits for Kafka to say whether there is more
_ANSWER_S = 3.0  # shorter than a driver's lease
_POLL_S, _POLL_WAITING_S = 1.0, 60.0

log = logging.getLogger(__name__)


def anchor_headers(anchors: Anchors) -> list[tuple[str, bytes]]:
    """Headers for a producer: whoever consumes the message can ack the trees it is in."""
    return [(ANCHORS_HEADER, anchors.to_bytes())]


def anchors_in(headers: Sequence[tuple[str, bytes]] | None) -> Anchors:
    """The anchors that a producer put into the headers of a message; none if it did not."""
    return Anchors.from_bytes(dict(headers or ()).get(ANCHORS_HEADER, b""))


@dataclass
class _Partition:
    finished: FinishedOffsets
    position: int
    """The next offset to arrive. Those that are skipped hold no message."""
    is_read: bool = False
    """Whether Kafka said that there is no more for now."""
    is_changed: bool = False


class KafkaSpout(Spout):
    """Hands out the messages of a topic, each task as a consumer of the group. The id is `partition:offset`.

    An offset is committed when all messages before it are complete or dead. What is complete beyond it is noted in the
    metadata of the commit, so that neither a restart nor the next owner of the partition processes it again, as long as
    the gaps fit into 4,000 characters. What is in work when a partition moves to another task may be processed twice.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        group: str,
        decode: Callable[[bytes], Any] = bytes.decode,
        fields: Sequence[str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """servers: host:port,host:port. group: each topology that should see every message needs its own; a new one
        starts with the oldest message.

        decode turns a message into its value: bytes.decode for text, json.loads, or a function of your own. fields:
        names of members of that value, one value each. A message that cannot be decoded becomes a dead letter.
        config: more settings of librdkafka, such as those for TLS and SASL.
        """
        self.fields = WHOLE if fields is None else fields
        self._names, self._decode = fields, decode
        self._topic, self._servers = topic, servers
        if taken := sorted(set(config or ()).intersection(_OURS)):
            raise BadInput(f"KafkaSpout sets {taken[0]!r} itself: leave it out of config.")
        self._config = {
            "auto.offset.reset": "earliest",
            "log_level": 0,  # it reports what the product reports too
            **(config or {}),
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        self._consumer: Consumer | None = None

    def open(self, context: TaskContext) -> None:
        self._partitions: dict[int, _Partition] | None = None
        """Those that this task owns; None until Kafka has assigned any."""
        self._live: dict[MessageId, Message] = {}
        self._again: dict[MessageId, None] = {}
        self._early: list[tuple[int, int]] = []
        """Partition and offset of messages of an earlier driver that are over, while Kafka has not assigned any."""
        self._arrived: deque[Any] = deque()
        """What keep_alive() has received."""
        self._polled_s = time.monotonic()
        self._trouble = ""
        try:
            self._consumer = Consumer({**self._config, "error_cb": self._on_error})
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        except KafkaException as error:
            raise BadInput(f"Kafka does not take the settings of this spout: {_text(error)}.") from None

    def next_batch(self, limit: int) -> list[Message]:
        again = list(self._again)[:limit]
        batch = [self._live[one] for one in again]
        for one in again:
            del self._again[one]
        deadline = time.monotonic() + _ARRIVAL_S
        while not batch:
            batch = self._read(limit)
            if batch or (self._partitions is not None and all(one.is_read for one in self._partitions.values())):
                break
            if time.monotonic() > deadline:
                why = self._trouble or "it has not answered yet"
                raise ServerUnavailable(f"Topic {self._topic!r} of {self._servers} cannot be read right now: {why}.")
        return batch

    def ack(self, message_id: MessageId) -> None:
        number, offset = map(int, str(message_id).split(":"))
        self._live.pop(message_id, None)
        self._again.pop(message_id, None)
        self._early.append((number, offset))
        if self._partitions is not None:
            self._finish_early(self._partitions)

    def fail(self, message_id: MessageId) -> None:
        if message_id in self._live:  # otherwise another task has its partition, or it arrives again
            self._again[message_id] = None

    def _finish_early(self, partitions: dict[int, _Partition]) -> None:
        for number, offset in self._early:
            partition = partitions.get(number)
            if partition and offset not in partition.finished:
                partition.finished.add(offset)
                partition.is_changed = True
        self._early.clear()

    def commit(self) -> None:
        if self._early:
            self._wait_for_partitions()
        changed = {number: one for number, one in (self._partitions or {}).items() if one.is_changed}
        if not changed or self._consumer is None:
            return
        offsets = [
            TopicPartition(self._topic, number, one.finished.first_unfinished, metadata=one.finished.to_text())
            for number, one in changed.items()
        ]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise ServerUnavailable(
                f"Offsets of topic {self._topic!r} cannot be committed right now: {_text(error)}."
            ) from None
        for one in changed.values():
            one.is_changed = False

    def _wait_for_partitions(self) -> None:
        """What an earlier driver could not commit must not be forgotten before this one has."""
        deadline = time.monotonic() + _ARRIVAL_S
        while self._partitions is None and self._consumer:
            if time.monotonic() > deadline:
                why = self._trouble or "it has not answered yet"
                raise ServerUnavailable(f"Offsets of topic {self._topic!r} cannot be committed right now: {why}.")
            if record := self._consumer.poll(_FETCH_S):
                self._arrived.append(record)
        self._finish_early(self._partitions or {})

    def keep_alive(self) -> None:
        """Kafka takes a consumer that does not poll for dead, after five minutes. What a poll brings is kept: it is
        little, since there are few polls while messages wait for room."""
        if self._consumer and time.monotonic() > self._polled_s + (_POLL_WAITING_S if self._arrived else _POLL_S):
            self._polled_s = time.monotonic()
            if record := self._consumer.poll(0):
                self._arrived.append(record)

    def close(self) -> None:
        if self._consumer:
            self._consumer.close()
            self._consumer = None

    # -- what Kafka says -------------------------------------------------------------------------------------------

    def _read(self, limit: int) -> list[Message]:
        assert self._consumer is not None
        records = [self._arrived.popleft() for _ in range(min(limit, len(self._arrived)))]
        if not records:
            records = self._consumer.consume(limit, timeout=_FETCH_S)
            self._polled_s = time.monotonic()
        batch: list[Message] = []
        for record in records:
            partition = (self._partitions or {}).get(record.partition() or 0)
            if error := record.error():
                self._on_record_error(error, partition)
            elif partition:
                self._trouble = ""
                if message := self._accept(record, partition):
                    batch.append(message)
        return batch

    def _accept(self, record: Any, partition: _Partition) -> Message | None:
        """The message to hand out; None if it is finished."""
        offset = record.offset()
        for skipped in range(partition.position, offset):
            if skipped not in partition.finished:
                partition.finished.add(skipped)
        partition.position, partition.is_read = offset + 1, False
        if offset in partition.finished:
            return None
        message_id = f"{record.partition()}:{offset}"
        where = f"Message {message_id} of topic {self._topic!r}"
        message = read_record(message_id, record.value() or b"", self._decode, self._names, where)
        anchors = dict(record.headers() or ()).get(ANCHORS_HEADER)
        self._live[message_id] = replace(message, anchors=anchors) if anchors else message
        return self._live[message_id]

    def _on_record_error(self, error: Any, partition: _Partition | None) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if partition:
                partition.is_read = True
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            raise BadInput(f"Topic {self._topic!r} of {self._servers} cannot be read: {error.str()}.")
        else:
            self._trouble = error.str()

    def _on_error(self, error: Any) -> None:
        self._trouble = error.str()

    def _on_assign(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        self._partitions = {}
        for one in consumer.committed(assigned, timeout=_ANSWER_S):
            start = one.offset
            if start < 0:  # the group is new to it
                start = consumer.get_watermark_offsets(one, timeout=_ANSWER_S)[0]
            self._partitions[one.partition] = _Partition(FinishedOffsets.from_text(start, one.metadata or ""), start)
        consumer.assign([TopicPartition(self._topic, number, one.position) for number, one in self._partitions.items()])

    def _on_revoke(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        try:
            self.commit()
        except ServerUnavailable as error:
            log.warning("%s What was complete may be processed again.", error)
        self._forget(revoked)

    def _on_lost(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        self._forget(lost)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        gone = {one.partition for one in partitions}
        self._partitions = {number: one for number, one in (self._partitions or {}).items() if number not in gone}
        for message_id in [one for one in self._live if int(str(one).partition(":")[0]) in gone]:
            del self._live[message_id]
            self._again.pop(message_id, None)


def _text(error: KafkaException) -> str:
    return str(error.args[0].str() if error.args else error)
