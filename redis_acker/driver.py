"""Drives a spout: emits its messages as roots, and tells it what became of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor
from typing import Any

from redis_acker.acker import Acker
from redis_acker.anchors import Anchors
from redis_acker.bolt import TaskContext
from redis_acker.collector import Edges, Router
from redis_acker.errors import MemoryFull, ServerUnavailable
from redis_acker.ids import U64Array
from redis_acker.lease import LEASE_MS, Lease
from redis_acker.message_ids import MessageId, check_message_ids
from redis_acker.observer import DriverCounters, Observer
from redis_acker.outcomes import Completion, Failure
from redis_acker.replays import Replays
from redis_acker.retries import DeadLetter, FailedAttempt, RetryBook, RetryPolicy, payload_of
from redis_acker.spout import Message, Spout

DEFAULT_MAX_PENDING = 10_000
"""Most roots a spout task has unfinished at once."""

OWN_TIMEOUT_FACTOR = 3
"""A root of which the store says nothing for this many timeouts has been lost by it, and has failed."""

_IDLE_S = 0.01

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _InFlight:
    root: int
    attempt: int
    deadline_ms: int
    message: Message | None
    """None: emitted by an earlier driver of this spout."""


@dataclass(frozen=True)
class _Batch:
    """Messages that are allocated to roots but perhaps not yet pending."""

    since_ms: int
    messages: list[Message]
    attempts: list[int]
    roots: U64Array
    edges: list[list[tuple[Any, int]]]
    """For each message the tasks that get it, and the edge under which they do."""


class SpoutDriver:
    """Emits under max_pending, acks the source on completion, replays what failed, buries what keeps failing.

    The message ids and attempts of pending roots are kept in the store, those of failed messages in a hash beside it.
    So a driver that was killed is succeeded by the next one under the same spout name, which takes over what is in
    work, and replays nothing that was completed.
    """

    def __init__(
        self,
        spout: Spout,
        acker: Acker | None,
        router: Router,
        *,
        name: str,
        context: TaskContext | None = None,
        max_pending: int = DEFAULT_MAX_PENDING,
        retries: RetryPolicy | None = None,
        own_timeout_ms: int | None = None,
        observer: Observer | None = None,
        holder_of: Callable[[int], str] | None = None,
        clock: Callable[[], int] | None = None,
        wait_for_lease: bool = False,
        lease_ms: int = LEASE_MS,
    ) -> None:
        """acker=None switches tracking off: messages are acked as soon as they are emitted.

        holder_of names the component that holds a root's tuple, for the text of a timeout. clock gives ms, for tests.
        """
        self.name = name
        self.counters = DriverCounters()
        self._spout, self._acker, self._router = spout, acker, router
        self._context = context or TaskContext(name, 0, 1)
        self._max_pending = max_pending
        self._observer = observer or Observer()
        self._holder_of = holder_of or (lambda root: "")
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)
        self._replays = Replays(retries or RetryPolicy(), self._clock)
        self._wait_for_lease, self._lease_ms = wait_for_lease, lease_ms
        self._in_flight: dict[MessageId, _InFlight] = {}
        self._finished: dict[MessageId, Callable[[MessageId], None]] = {}
        self._batch: _Batch | None = None
        self._new_edge = Edges()
        self._warned = self._exhausted = False
        if acker:
            self._own_timeout_ms = own_timeout_ms or OWN_TIMEOUT_FACTOR * acker.settings.timeout_ms

    # -- life ----------------------------------------------------------------------------------------------------

    def open(self, stop: threading.Event | None = None) -> None:
        """Takes the spout, learns what an earlier driver left in work, and opens the source."""
        if self._acker:
            self._lease = Lease(self._acker, self.name, for_ms=self._lease_ms)
            self._lease.take(wait=self._wait_for_lease, stop=stop or threading.Event())
            self._book = RetryBook(self._acker, self.name)
            self._completions = self._acker.completions(self.name, consumer="driver")
            self._failures = self._acker.failures(self.name, consumer="driver")
            self._replays.open(self._book)
        self._spout.open(self._context)
        if self._acker:
            self._adopt()

    def _adopt(self) -> None:
        """Takes over roots that are pending. First the list, then the streams: what completes in between is in both,
        and what completed before must be known before the source hands it out again."""
        assert self._acker is not None
        for pending in self._acker.pending(spout=self.name):
            known = self._in_flight.get(pending.message_id) if pending.message_id is not None else None
            if pending.message_id is not None and (known is None or known.attempt < pending.attempt):
                deadline_ms = self._clock() + self._own_timeout_ms
                self._in_flight[pending.message_id] = _InFlight(pending.root, pending.attempt, deadline_ms, None)
        self._replays.plan_all(but=set(self._in_flight))
        while self._consume():
            pass

    def run(self, stop: threading.Event) -> None:
        """Drives until told to stop."""
        self.open(stop)
        try:
            while not stop.is_set():
                try:
                    busy = self.step()
                except ServerUnavailable as error:
                    log.error("Spout %s waits for the store: %s", self.name, error)
                    if self._acker:
                        self._completions.rewind()
                        self._failures.rewind()
                    busy = False
                if not busy:
                    stop.wait(_IDLE_S)
        finally:
            self.close()

    def step(self) -> bool:
        """One round: final events, own timeouts, replays that are due, new messages. False if there was nothing."""
        if self._acker:
            self._lease.renew()
        busy = bool(self._acker) and self._consume()
        busy |= self._time_out()
        busy |= self._call_for_replays()
        return (self._send() if self._batch else self._emit_new()) or busy

    def is_idle(self) -> bool:
        """Whether the source had nothing new at the last look and nothing is in work or waits for a replay."""
        return self._exhausted and self._replays.is_empty() and not (self._in_flight or self._batch)

    def close(self) -> None:
        """Ends. What is in work stays pending for the next driver."""
        self._spout.close()
        if self._acker:
            self._lease.give_up()

    # -- final events --------------------------------------------------------------------------------------------

    def _consume(self) -> bool:
        completions, failures = self._completions.read(), self._failures.read()
        done = [one for completion in completions for one in self._complete(completion)]
        for failure in failures:
            self._fail(failure)
        if completions or failures:
            self._replays.forget(done)
            self._spout.commit()
            # Only now that the source knows, the store may forget.
            self._completions.release(completions)
            self._failures.release(failures)
        return bool(completions or failures)

    def _complete(self, completion: Completion) -> list[MessageId]:
        done = []
        roots = completion.roots.tolist()
        for root, message_id, latency_ms in zip(roots, completion.message_ids, completion.ages_ms, strict=True):
            if message_id is None or self._is_stale(message_id, root):
                continue
            self._settle(message_id, self._spout.ack, self._in_flight.pop(message_id, None))
            self.counters.completed += 1
            self._observer.on_complete(message_id, latency_ms)
            done.append(message_id)
        return done

    def _fail(self, failure: Failure) -> None:
        roots = failure.roots.tolist()
        for root, message_id, attempt in zip(roots, failure.message_ids, failure.attempts, strict=True):
            if message_id is None or self._is_stale(message_id, root):
                continue
            component, error = failure.component, failure.error
            if failure.reason == "timeout" and not component:
                component = self._holder_of(root)
                error = error or (component and f"{component} was given it and has neither acked nor failed it")
            self._retry(
                message_id, FailedAttempt(attempt, failure.reason, component, error, failure.at_ms), failure.fatal
            )

    def _is_stale(self, message_id: MessageId, root: int) -> bool:
        """Whether the event is of an attempt this driver has given up for lost and replayed since."""
        in_flight = self._in_flight.get(message_id)
        return in_flight is not None and in_flight.root != root

    def _retry(self, message_id: MessageId, failed: FailedAttempt, fatal: bool) -> None:
        in_flight = self._in_flight.pop(message_id, None)
        history = self._replays.add(message_id, failed)
        if history is None:
            return
        self.counters.failed += 1
        self._observer.on_fail(message_id, failed.reason)
        if fatal or self._replays.is_last(failed.attempt):
            self._bury(message_id, list(history), fatal, in_flight)
        else:
            self._replays.plan(message_id)

    def _bury(
        self, message_id: MessageId, history: list[FailedAttempt], fatal: bool, in_flight: _InFlight | None
    ) -> None:
        payload = payload_of(in_flight.message.values) if in_flight and in_flight.message else None
        letter = DeadLetter(message_id, self.name, history, fatal, payload)
        self._book.bury(letter)
        self._replays.drop(message_id)
        self._settle(message_id, self._spout.dead, in_flight)
        self.counters.dead += 1
        last = history[-1]
        where = f" in {last.component}" if last.component else ""
        text = f"{last.reason}{where}: {last.error}"
        log.error("Message %r of spout %s is dead after %d attempts: %s", message_id, self.name, last.attempt, text)
        self._observer.on_dead(letter)

    def _settle(self, message_id: MessageId, tell: Callable[[MessageId], None], in_flight: _InFlight | None) -> None:
        """Tells the source. If it has not handed the message out since the restart, it is told again when it does."""
        if in_flight is None or in_flight.message is None:
            self._finished[message_id] = tell
        tell(message_id)

    def _time_out(self) -> bool:
        """Fails what the store has said nothing about for so long that it must have lost it."""
        now_ms = self._clock()
        lost = []
        for message_id, in_flight in self._in_flight.items():  # oldest first
            if in_flight.deadline_ms > now_ms:
                break
            lost.append((message_id, in_flight))
        for message_id, in_flight in lost:
            assert self._acker is not None
            if self._acker.inspect(in_flight.root).state in ("pending", "finished"):
                # Extended, or its event is still to be read: ask again later.
                del self._in_flight[message_id]
                self._in_flight[message_id] = replace(in_flight, deadline_ms=now_ms + self._own_timeout_ms)
                continue
            error = f"the store has lost it: no final event for {self._own_timeout_ms} ms"
            self._retry(message_id, FailedAttempt(in_flight.attempt, "timeout", "", error, now_ms), False)
        return bool(lost)

    # -- messages ------------------------------------------------------------------------------------------------

    def _call_for_replays(self) -> bool:
        due = self._replays.due()
        for message_id in due:
            self._spout.fail(message_id)
        return bool(due)

    def _emit_new(self) -> bool:
        room = self._max_pending - len(self._in_flight) - self._replays.held_count()
        if room <= 0:
            self.counters.waited += 1
            if not self._warned:
                self._warned = True
                log.warning("Spout %s waits: max_pending=%d roots are unfinished.", self.name, self._max_pending)
            return self._emit(self._replays.take_held())
        messages = [*self._replays.take_held(), *self._spout.next_batch(room)]
        self._exhausted = not messages
        seen: set[MessageId] = set()
        return self._emit([message for message in messages if self._is_to_be_emitted(message, seen)])

    def _is_to_be_emitted(self, message: Message, seen: set[MessageId]) -> bool:
        if message.id is None or self._acker is None:
            return True
        if message.id in seen:
            return False  # the source handed it out twice in one batch
        seen.add(message.id)
        if tell := self._finished.pop(message.id, None):
            tell(message.id)
            self._spout.commit()
            return False
        if in_flight := self._in_flight.get(message.id):
            # In work, from before a restart or handed out twice: from now on its payload is known.
            self._in_flight[message.id] = replace(in_flight, message=message)
            return False
        return not self._replays.hold_back(message)

    def _emit(self, messages: list[Message]) -> bool:
        """Sends out what is not tracked, and makes the rest a batch."""
        tracked, targets_of = [], []
        for message in messages:
            targets = self._router.targets(message.stream, message.values)
            if self._acker and message.id is not None and targets:
                tracked.append(message)
                targets_of.append(targets)
                continue
            for target in targets:
                self._router.deliver(target, message.values, message.stream, Anchors())
            self.counters.emitted += 1
            if message.id is not None:
                self._spout.ack(message.id)
        if len(tracked) < len(messages):
            self._spout.commit()
        if tracked:
            self._batch = self._allocate(tracked, targets_of)
            self._send()
        return bool(messages)

    def _allocate(self, messages: list[Message], targets_of: list[list[Any]]) -> _Batch:
        assert self._acker is not None
        ids: list[Any] = [message.id for message in messages]
        check_message_ids(ids, len(ids))
        attempts = [self._replays.next_attempt(one) for one in ids]
        edges = [[(target, self._new_edge()) for target in targets] for targets in targets_of]
        return _Batch(self._clock(), messages, attempts, self._acker.allocate(self.name, len(messages)), edges)

    def _send(self) -> bool:
        """Makes the batch pending, then sends it out. Tried again in the next round if the store refuses."""
        assert self._acker is not None
        assert self._batch is not None
        batch = self._batch
        if self._clock() - batch.since_ms > self._acker.settings.timeout_ms / 2:
            # Too old: its roots may have timed out since, and an init must not bring them back.
            targets_of = [[target for target, _ in edges] for edges in batch.edges]
            batch = self._batch = self._allocate(batch.messages, targets_of)
        ids: list[Any] = [message.id for message in batch.messages]
        ack_vals = [reduce(xor, (edge for _, edge in edges)) for edges in batch.edges]
        try:
            self._acker.init(batch.roots, ack_vals, message_ids=ids, attempts=batch.attempts, echo_ids=True)
        except MemoryFull as error:
            if not self._warned:
                self._warned = True
                log.warning("Spout %s waits: %s", self.name, error)
            return False
        self._batch = None
        deadline_ms = self._clock() + self._own_timeout_ms
        for message, root, attempt, edges in zip(
            batch.messages, batch.roots.tolist(), batch.attempts, batch.edges, strict=True
        ):
            assert message.id is not None
            self._in_flight[message.id] = _InFlight(root, attempt, deadline_ms, message)
            self.counters.emitted += 1
            self.counters.replayed += attempt > 1
            for target, edge in edges:
                self._router.deliver(target, message.values, message.stream, Anchors({root: edge}))
        return True
