"""What a driver that died leaves to the next: roots that nobody works on, one of which may have killed the process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from redis_acker.driver.life import Life, Messages, State
from redis_acker.errors import Unreadable
from redis_acker.retries.book import Retry, RetryBook, Suspicion, payload_of
from redis_acker.store.acker import Acker
from redis_acker.store.ids import U64Array, sequence_of
from redis_acker.store.lease import Lease
from redis_acker.store.message_ids import MessageId
from redis_acker.store.streams import Failure, parse_entry

KILLS = "it kills its process: it was alone in flight when that died"

_MOST_DIGITS = 15  # of a block sequence

log = logging.getLogger(__name__)


class Flight:
    """What is in flight: emitted by this driver and pending.

    Beside the lease stands the block sequence with which the driver at work began; it is gone when a driver stops. So
    the next driver knows that the one before it died, and what that one had in flight. Of these messages none, or one,
    is to blame. They become suspects: the next time, only half as many of them are in flight together. One that was in
    flight alone has used up an attempt, if it was a suspect before.
    """

    def __init__(
        self, acker: Acker, book: RetryBook, lease: Lease, messages: Messages, *, name: str, clock: Callable[[], int]
    ) -> None:
        self._acker, self._book, self._lease, self._messages = acker, book, lease, messages
        self._name, self._clock, self._number = name, clock, acker.spout_number(name)
        self._suspicions: dict[MessageId, Suspicion] = {}
        self._killer: int | None = None
        self._began = self._began_before = ""
        """The sequences with which this driver began, once it emits, and the one before it, if that died."""

    def adopt(self, *, own_timeout_ms: int) -> None:
        """Takes over what is pending and what failed. The streams are read after that: what completes in between is in
        both, and what completed before must be known before the source hands it out again."""
        noted = self._book.load(requests=False)
        for pending in self._acker.pending(spout=self._name):
            self._lease.renew()
            if pending.message_id is None:
                continue
            life, retry = self._messages.life_of(pending.message_id), noted.get(pending.message_id)
            # An attempt that the retry book has is over, even if a server that lost writes shows it as pending.
            is_given_up = retry is not None and pending.attempt <= retry.attempt
            if is_given_up or (pending.attempt, pending.root) < (life.attempt, life.root):
                continue
            life.root, life.attempt, life.retry, life.is_adopted = pending.root, pending.attempt, retry, True
            life.deadline_ms = self._clock() + own_timeout_ms
            if life.state is None:
                self._messages.move(life, State.PENDING)
        for message_id, retry in noted.items():
            life = self._messages.life_of(message_id)
            if life.state is None:
                life.retry = retry
                self._messages.move(life, State.WAITING)
        self._find_suspects()

    def begin(self, roots: U64Array, lives: list[Life]) -> None:
        """Called before roots become pending."""
        for life in lives:
            if life.suspicion and life.suspicion.together == 1:
                self._keep_values(life)
        if self._began:
            return
        # The suspects first: with the old sequence gone, nobody could tell any more who they are.
        self._lease.renew()
        self._book.note({life.id: life.retry for life in self._unnoted() if life.retry})
        began = str(sequence_of(int(roots[0])))
        self._lease.begin(began)
        self._began = began

    def end(self, *, has_read_all: bool) -> str:
        """What the store may forget when this driver stops: the sequence that it has for the driver at work. Empty if
        the next driver needs it to tell suspects."""
        if self._began or (has_read_all and not self._unnoted()):
            return self._began or self._began_before
        return ""

    # -- suspects ------------------------------------------------------------------------------------------------

    def accuse(self, life: Life) -> None:
        """Notes that a message is a suspect, if it is. The retry book has to be told."""
        if suspicion := self._suspicions.get(life.id):
            life.retry = replace(life.retry or Retry(), suspicion=suspicion)

    def is_killer(self, root: int) -> bool:
        """Whether a root was in flight alone, and its message a suspect before."""
        return root == self._killer

    def _keep_values(self, life: Life) -> None:
        """For the dead letter of a message that is about to be in flight alone: if it kills this process, the next
        driver gives it up before the source hands it out."""
        retry, message = life.retry, life.message
        if retry and retry.suspicion and message and retry.suspicion.payload is None:
            kept = replace(retry.suspicion, payload=payload_of(message.values), stream=message.stream)
            life.retry = replace(retry, suspicion=kept)
            self._lease.renew()
            self._book.note({life.id: life.retry})

    def _find_suspects(self) -> None:
        began = self._acker.shards.began(self._number)
        if not (began.isdigit() and len(began) <= _MOST_DIGITS):
            return
        self._began_before = began.decode()
        found = self._in_flight_since(int(began))
        together = max(1, len(found) // 2)
        for message_id, root in found.items():
            life = self._messages.life_of(message_id)
            before = life.suspicion
            if len(found) == 1 and before and before.together == 1 and before.root != root:
                self._killer = root
                self._acker.fail([root], error=KILLS)  # durable, and at once if it has not timed out yet
            else:
                self._suspicions[message_id] = Suspicion(together, root)
                if life.state is State.PENDING:
                    self.accuse(life)
        if self._suspicions:
            log.warning(
                "Spout %s: a driver died with %d messages in flight. If nobody else completes them, they are tried "
                "again, at most %d at a time, and nothing else meanwhile. This does not count as an attempt.",
                self._name,
                len(found),
                together,
            )

    def _in_flight_since(self, began: int) -> dict[MessageId, int]:
        """Message -> root of what was emitted since and nobody has finished: it is pending, or has timed out."""
        pending = self._messages.all(State.PENDING)
        found = {life.id: life.root for life in pending if sequence_of(life.root) >= began}
        for shard in range(len(self._acker.shards)):
            for entry, flat in self._acker.shards.entries("failures", self._number, shard):
                self._lease.renew()
                for message_id, root in _timed_out(shard, entry, flat):
                    if message_id is not None and sequence_of(root) >= began:
                        found[message_id] = max(root, found.get(message_id, 0))
        return found

    def _unnoted(self) -> list[Life]:
        """Suspects that are not over, nor in the retry book as such."""
        pending = self._messages.all(State.PENDING)
        return [life for life in pending if life.is_adopted and life.id in self._suspicions]


def _timed_out(shard: int, entry: bytes, flat: list[bytes]) -> Iterable[tuple[MessageId | None, int]]:
    """Messages and roots of a failure that is a timeout."""
    try:
        failure = parse_entry("failures", shard, entry, flat)
    except Unreadable:
        return ()  # its reader sets it aside
    if not isinstance(failure, Failure) or failure.reason != "timeout" or failure.error:
        return ()
    return zip(failure.message_ids, failure.roots.tolist(), strict=True)


class Trials:
    """Suspects are tried by themselves: while any are, the drivers of a process emit nothing else."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: dict[Any, int] = {}
        """Of each driver, when it last asked."""
        self._turn: Any = None
        """The driver whose suspects are tried."""
        self._together = 0
        """Most of them that may be in flight; 0 until all else has landed."""

    @property
    def is_on(self) -> bool:
        return self._turn is not None

    def admit(self, driver: Any, ready: list[Life], in_flight: int) -> list[Life]:
        """Which of the messages that are READY a driver may emit now. To be asked in every round, whatever is READY."""
        suspects = sorted((life for life in ready if life.suspicion), key=_together, reverse=True)
        with self._lock:
            self._in_flight[driver] = in_flight
            if suspects and self._turn is None:
                self._turn, self._together = driver, 0
            if self._turn is driver and not any(self._in_flight.values()):
                self._together = _together(suspects[0]) if suspects else 0
                self._turn = driver if suspects else None
            if self._turn is None:
                admitted = ready
            elif self._turn is driver:
                admitted = self._next(suspects, in_flight)
            else:
                admitted = []
            self._in_flight[driver] += len(admitted)
            return admitted

    def _next(self, suspects: list[Life], in_flight: int) -> list[Life]:
        """The least suspicious first: large groups clear many at once."""
        admitted: list[Life] = []
        for life in suspects:
            most = min(self._together, _together(life))
            if in_flight + len(admitted) >= most:
                break
            self._together = most
            admitted.append(life)
        return admitted


def _together(life: Life) -> int:
    return life.suspicion.together if life.suspicion else 0
