"""Messages that other programs hand over, for a topology."""

from __future__ import annotations

from collections.abc import Iterable

from redis_acker.components.component import TaskContext
from redis_acker.components.inbox import Delivery, Inbox
from redis_acker.components.spout import Message, Spout
from redis_acker.errors import BadInput
from redis_acker.store.acker import DEFAULT_NAMESPACE, Acker
from redis_acker.store.message_ids import MessageId


class AnchoredSpout(Spout):
    """Hands out the messages of a spout that came with anchors (RedisStreamSpout, KafkaSpout), as messages of this
    topology: each gets a tree of its own here, with the retries of this topology.

    When that is complete, the delivery is acked by its edge, once, however often its transport brings it. When it is
    given up here, the message of the other program fails, and its spout decides what happens then. Until either, it
    does not time out. A delivery that was acked before, or whose message is over, is not handed out.
    """

    def __init__(self, source: Spout, url: str, *, name: str, namespace: str = DEFAULT_NAMESPACE) -> None:
        """url, namespace: of the store that knows the other program's messages. name: what failures carry."""
        self.fields, self.streams = source.fields, source.streams
        self._source, self._url, self._name, self._namespace = source, url, name, namespace

    def open(self, context: TaskContext) -> None:
        self._acker = Acker(self._url, namespace=self._namespace, create=False)
        self._inbox = Inbox(self._acker, name=self._name)
        self._held: dict[MessageId, Delivery | None] = {}
        """What was handed out and is unfinished; None for a message without anchors."""
        self._done: list[Delivery] = []
        self._dead: list[Delivery] = []
        self._extend_at_s = 0.0
        self._source.open(context)

    def next_batch(self, limit: int) -> Iterable[Message]:
        batch = [self._checked(one) for one in self._source.next_batch(limit)]
        anchored = [one for one in batch if one.anchors and not one.error]
        # Without spans: that of the message in this topology continues the trace.
        deliveries = dict(zip(map(id, anchored), self._inbox.take_in([one.anchors for one in anchored]), strict=True))
        found: list[Message] = []
        for message in batch:
            if message.id is None:
                found.append(message)
            elif (delivery := deliveries.get(id(message))) is None and id(message) in deliveries:
                self._source.ack(message.id)
            else:
                self._held[message.id] = delivery
                found.append(message)
        return found

    def _checked(self, message: Message) -> Message:
        if message.anchors and message.id is None:
            raise BadInput(f"A message with anchors needs an id, and {message!r} has none.")
        return message

    def ack(self, message_id: MessageId) -> None:
        self._finish(message_id, self._done)

    def dead(self, message_id: MessageId) -> None:
        self._finish(message_id, self._dead)

    def _finish(self, message_id: MessageId, finished: list[Delivery]) -> None:
        if message_id not in self._held:
            return  # an earlier driver had it: the source hands it out once more, and then it is told again
        if delivery := self._held.pop(message_id):
            finished.append(delivery)
        (self._source.ack if finished is self._done else self._source.dead)(message_id)

    def fail(self, message_id: MessageId) -> None:
        self._source.fail(message_id)

    def commit(self) -> None:
        if self._done:
            self._inbox.ack(self._done)
            self._done = []
        while self._dead:
            self._inbox.fail(self._dead[-1], "its last attempt there has failed")
            self._dead.pop()
        self._source.commit()

    def keep_alive(self) -> None:
        now_s = self._acker.clock.monotonic_s()
        if now_s >= self._extend_at_s:
            self._extend_at_s = now_s + self._acker.settings.timeout_ms / 4000
            self._acker.extend([root for one in self._held.values() if one for root in one.anchors])
        self._source.keep_alive()

    def lag(self) -> int | None:
        return self._source.lag()

    def close(self) -> None:
        self._source.close()
        if hasattr(self, "_acker"):  # otherwise the URL was wrong
            self._acker.close()
