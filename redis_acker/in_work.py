"""What the parts of a driver share: its messages in work, and the right to go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redis_acker.errors import MemoryFull
from redis_acker.lease import Lease
from redis_acker.message_ids import MessageId
from redis_acker.observer import DriverCounters
from redis_acker.replays import Replays
from redis_acker.spout import Message, Spout

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InFlight:
    """A message in work."""

    root: int
    attempt: int
    deadline_ms: int
    message: Message | None
    """None: emitted by an earlier driver of this spout."""


@dataclass
class InWork:
    """The messages of a spout that its driver has to do with."""

    name: str
    spout: Spout
    replays: Replays
    clock: Callable[[], int]
    own_timeout_ms: int
    counters: DriverCounters = field(default_factory=DriverCounters)
    lease: Lease | None = None
    in_flight: dict[MessageId, InFlight] = field(default_factory=dict)
    """Oldest first."""
    finished: dict[MessageId, Callable[[MessageId], None]] = field(default_factory=dict)
    """What to tell the source of messages that an earlier driver emitted, should it hand them out again."""
    is_short_of_memory: bool = False

    def renew_lease(self) -> None:
        if self.lease:
            self.lease.renew()

    def as_holder(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Does what only the holder of the lease may do. A driver that was paused meanwhile stops here."""
        self.renew_lease()
        return call(*args, **options)

    def put(self, message_id: MessageId, root: int, attempt: int, message: Message | None) -> None:
        self.in_flight[message_id] = InFlight(root, attempt, self.clock() + self.own_timeout_ms, message)

    def settle(self, message_id: MessageId, tell: Callable[[MessageId], None], in_flight: InFlight | None) -> None:
        """Tells the source. If it has not handed the message out since the restart, it is told again when it does."""
        self.as_holder(tell, message_id)
        if in_flight is None or in_flight.message is None:
            self.finished[message_id] = tell

    def wait_for_memory(self, error: MemoryFull) -> None:
        self.counters.waited += 1
        if not self.is_short_of_memory:
            self.is_short_of_memory = True
            log.warning("Spout %s waits: %s", self.name, error)
