"""A durable source, in two parts: the disk, which outlives its process, and the spout, which does not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from redis_acker import Message, Spout, TaskContext
from redis_acker.store.message_ids import MessageId


class Disk:
    """The messages of a source, and what was committed about them."""

    def __init__(self, plans: Mapping[MessageId, str]) -> None:
        """What is to happen to each message: see tests.driver.world."""
        self.plans = dict(plans)
        self.settled: dict[MessageId, str] = {}
        self.mistakes: list[str] = []

    def is_done(self) -> bool:
        return self.settled.keys() == self.plans.keys()

    def settle(self, outcomes: Mapping[MessageId, str]) -> None:
        for message_id, outcome in outcomes.items():
            if self.settled.setdefault(message_id, outcome) != outcome:
                self.mistakes.append(f"{message_id!r} was {self.settled[message_id]} and then {outcome}")


class DurableSpout(Spout):
    """Hands out what is not settled on its disk, each message once until it is told to do so again."""

    fields = ("id", "plan")

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.is_open = False

    def open(self, context: TaskContext) -> None:
        self.is_open = True
        self._waiting = deque(message_id for message_id in self.disk.plans if message_id not in self.disk.settled)
        self._uncommitted: dict[MessageId, str] = {}
        self._handed_out: set[MessageId] = set()

    def add(self, message_id: MessageId, plan: str = "complete") -> None:
        """A message comes in, or once more."""
        self.disk.plans[message_id] = plan
        self._waiting.append(message_id)

    def unfinished(self) -> set[MessageId]:
        """Messages of which it has not been told that they are settled."""
        return self.disk.plans.keys() - self.disk.settled.keys() - self._uncommitted.keys()

    def next_batch(self, limit: int) -> Iterable[Message]:
        batch = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        self._handed_out.update(batch)
        return [Message([message_id, self.disk.plans[message_id]], id=message_id) for message_id in batch]

    def ack(self, message_id: MessageId) -> None:
        self._uncommitted[message_id] = "acked"

    def dead(self, message_id: MessageId) -> None:
        self._uncommitted[message_id] = "dead"

    def fail(self, message_id: MessageId) -> None:
        if message_id in self._uncommitted or message_id in self.disk.settled:
            self.disk.mistakes.append(f"{message_id!r} is to be replayed though it is settled")
        elif message_id in self._handed_out:
            self._handed_out.remove(message_id)
            self._waiting.append(message_id)

    def commit(self) -> None:
        self.disk.settle(self._uncommitted)
        self._uncommitted = {}

    def close(self) -> None:
        self.is_open = False


class Forgetful(DurableSpout):
    """A source that does not hand out by itself what it had handed out before a restart, as one with a cursor."""

    def open(self, context: TaskContext) -> None:
        super().open(context)
        self._waiting.clear()
        self._handed_out.update(self.disk.plans)


class Deaf(Forgetful):
    """A source that does not hand out again what it is asked for."""

    def fail(self, message_id: MessageId) -> None:
        self.asked = message_id
