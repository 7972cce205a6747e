"""Drives a spout: emits its messages as roots, and tells it what became of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any

from redis_acker.acker import Acker
from redis_acker.bolt import TaskContext
from redis_acker.collector import Router
from redis_acker.emitter import Emitter
from redis_acker.errors import BadInput, MemoryFull, ServerUnavailable
from redis_acker.in_work import InFlight, InWork
from redis_acker.lease import LEASE_MS, Lease
from redis_acker.message_ids import MessageId
from redis_acker.observer import Observer
from redis_acker.outcomes import Completion, Failure
from redis_acker.replays import Replays
from redis_acker.retries import DeadLetter, FailedAttempt, RetryBook, RetryPolicy, payload_of
from redis_acker.spout import Message, Spout

DEFAULT_MAX_PENDING = 10_000
"""Most roots a spout task has unfinished at once."""

OWN_TIMEOUT_FACTOR = 3
"""A root of which the store says nothing for this many timeouts has been lost by it, and has failed."""

REQUESTS_EVERY_MS = 1_000
"""How often a driver looks whether others have asked for replays."""

_OVERDUE_AT_ONCE = 1_000
_IDLE_S = 0.01

log = logging.getLogger(__name__)


class SpoutDriver:
    """Emits under max_pending, acks the source on completion, replays what failed, buries what keeps failing.

    The message ids and attempts of pending roots are kept in the store, those of failed messages in a hash beside it.
    So a driver that was killed is succeeded by the next one under the same spout name, which takes over what is in
    work, and replays nothing that was completed.

    A round that ends with an error, of the store or of the source, is gone on with in the next: what was read, taken
    from the source or decided is kept until it is dealt with.
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
        if max_pending < 1:
            raise BadInput(f"max_pending must be a number of roots from 1 on, not {max_pending!r}.")
        self.name = name
        self._spout, self._acker = spout, acker
        self._context = context or TaskContext(name, 0, 1)
        self._observer = observer or Observer()
        self._holder_of = holder_of or (lambda root: "")
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)
        self._replays = Replays(retries or RetryPolicy(), self._clock)
        self._wait_for_lease, self._lease_ms = wait_for_lease, lease_ms
        self._own_timeout_ms = own_timeout_ms or OWN_TIMEOUT_FACTOR * (acker.settings.timeout_ms if acker else 0)
        self._work = InWork(name, spout, self._replays, self._clock, self._own_timeout_ms)
        self.counters = self._work.counters
        self._in_flight = self._work.in_flight
        self._to_bury: dict[MessageId, tuple[DeadLetter, InFlight | None]] = {}
        self._emitter = Emitter(
            self._work,
            acker,
            router,
            max_pending=max_pending,
            is_dying=self._to_bury.__contains__,
            give_up=self._give_up,
        )
        self._completed: list[Completion] = []
        self._failed: list[Failure] = []
        self._spout_is_open = self._adopting = False
        self._next_requests_ms = 0

    # -- life ----------------------------------------------------------------------------------------------------

    def open(self, stop: threading.Event | None = None) -> bool:
        """Takes the spout, opens the source, and learns what an earlier driver left in work. False if told to stop
        while it waited for the spout."""
        try:
            if self._acker:
                lease = Lease(self._acker, self.name, for_ms=self._lease_ms)
                if not lease.take(wait=self._wait_for_lease, stop=stop or threading.Event()):
                    return False
                self._work.lease = lease
            self._work.renew_lease()
            self._spout_is_open = True
            self._spout.open(self._context)
            if self._acker:
                self._adopt(self._acker)
        except BaseException:
            self.close()
            raise
        return True

    def _adopt(self, acker: Acker) -> None:
        """Takes over roots that are pending. First the list, then the streams: what completes in between is in both,
        and what completed before must be known before the source hands it out again."""
        self._book = RetryBook(acker, self.name)
        self._replays.open(self._book)
        for pending in acker.pending(spout=self.name):
            self._work.renew_lease()
            # An attempt that is noted as failed was given up, by a driver or with writes that a server has lost.
            if pending.message_id is None or pending.attempt < self._replays.next_attempt(pending.message_id):
                continue
            known = self._in_flight.get(pending.message_id)
            if known is None or (known.attempt, known.root) < (pending.attempt, pending.root):
                self._work.put(pending.message_id, pending.root, pending.attempt, None)
        self._replays.plan_all(but=set(self._in_flight))
        self._completions = acker.completions(self.name, consumer="driver")
        self._failures = acker.failures(self.name, consumer="driver")
        self._adopting = True

    def run(self, stop: threading.Event) -> None:
        """Drives until told to stop."""
        if not self.open(stop):
            return
        try:
            while not stop.is_set():
                try:
                    busy = self.step()
                except ServerUnavailable as error:
                    log.error("Spout %s waits: %s", self.name, error)
                    busy = False
                if not busy:
                    stop.wait(_IDLE_S)
        finally:
            self.close()

    def step(self) -> bool:
        """One round: final events, own timeouts, replays that are due, new messages. False if there was nothing."""
        self._work.renew_lease()
        self._spout.keep_alive()
        busy = False
        try:
            if self._acker:
                busy = self._consume()
                if self._adopting and (busy or self._completed or self._failed):
                    return busy
                self._adopting = False
                busy |= self._time_out(self._acker)
                self._take_requests()
                busy |= self._call_for_replays()
            return self._emitter.emit() or busy
        except MemoryFull as error:
            self._work.wait_for_memory(error)
            return False

    def is_idle(self) -> bool:
        """Whether the source had nothing new at the last look and nothing is in work or waits for a replay."""
        return self._looks_idle() and self._looks_idle()

    def _looks_idle(self) -> bool:
        # In the order in which a message that fails comes by, so that one that moves on is seen at the next place.
        return not self._in_flight and self._replays.is_empty() and self._emitter.is_idle()

    def close(self) -> None:
        """Ends. What is in work stays pending for the next driver."""
        try:
            if self._spout_is_open:
                self._spout.close()
        finally:
            if self._work.lease:
                self._work.lease.give_up()

    # -- final events --------------------------------------------------------------------------------------------

    def _consume(self) -> bool:
        """Deals with final events. They are released, and so forgotten by the store, once the source knows."""
        busy = self._consume_completions()
        self._failed = self._failed or self._work.as_holder(self._failures.read)
        for failure in self._failed:
            self._fail(failure)
        return self._save_failures() or busy

    def _consume_completions(self) -> bool:
        as_holder = self._work.as_holder
        self._completed = self._completed or as_holder(self._completions.read)
        if not self._completed:
            return False
        for completion in self._completed:
            self._complete(completion)
        as_holder(self._replays.save_drops)
        as_holder(self._spout.commit)
        as_holder(self._completions.release, self._completed)
        self._completed = []
        return True

    def _complete(self, completion: Completion) -> None:
        roots = completion.roots.tolist()
        for root, message_id, latency_ms in zip(roots, completion.message_ids, completion.ages_ms, strict=True):
            if message_id is not None and self._is_news(message_id, root):
                self._work.settle(message_id, self._spout.ack, self._in_flight.get(message_id))
                self._replays.drop(message_id)
                self._in_flight.pop(message_id, None)
                self.counters.completed += 1
                self._notify(self._observer.on_complete, message_id, latency_ms)

    def _fail(self, failure: Failure) -> None:
        roots = failure.roots.tolist()
        for root, message_id, attempt in zip(roots, failure.message_ids, failure.attempts, strict=True):
            if message_id is None or not self._is_news(message_id, root):
                continue
            if message_id in self._in_flight:
                attempt = self._attempt_of(message_id, attempt)
            component, error = failure.component, failure.error
            if failure.reason == "timeout" and not component:
                component = self._holder_of(root)
                error = error or (component and f"{component} was given it and has neither acked nor failed it")
            self._retry(
                message_id, FailedAttempt(attempt, failure.reason, component, error, failure.at_ms), failure.fatal
            )

    def _is_news(self, message_id: MessageId, root: int) -> bool:
        """Whether the event is of the root in work, or was left by an earlier driver. Any other is of a root that was
        given up, or is of a driver that went on after this one had taken over."""
        in_flight = self._in_flight.get(message_id)
        if in_flight:
            return in_flight.root == root
        return self._adopting and message_id not in self._work.finished

    def _attempt_of(self, message_id: MessageId, attempt: int) -> int:
        """The attempt that a message in work is at, if meanwhile others have told of more that failed."""
        return max(attempt, self._replays.next_attempt(message_id))

    def _retry(self, message_id: MessageId, failed: FailedAttempt, fatal: bool) -> None:
        """Decides what becomes of a message whose attempt failed; _save_failures() does it."""
        history = self._replays.add(message_id, failed)
        in_flight = self._in_flight.pop(message_id, None)  # not before: is_idle() must find it in one or the other
        if history is None:
            return
        self.counters.failed += 1
        self._notify(self._observer.on_fail, message_id, failed.reason)
        if fatal or self._replays.is_last(failed.attempt):
            self._to_bury[message_id] = self._letter(message_id, history, fatal, in_flight), in_flight
        else:
            self._replays.plan(message_id)

    def _letter(
        self, message_id: MessageId, history: list[FailedAttempt], fatal: bool, in_flight: InFlight | None
    ) -> DeadLetter:
        message = in_flight.message if in_flight else None
        if message is None:  # emitted by an earlier driver; if it was dead before, its values are in the retry book
            return DeadLetter(message_id, self.name, list(history), fatal, self._replays.payload(message_id))
        return DeadLetter(
            message_id,
            self.name,
            list(history),
            fatal,
            payload_of(message.values),
            message.stream,
            is_readable=not message.error,
        )

    def _save_failures(self) -> bool:
        """Writes down what has failed, then tells the source what is dead."""
        if not (self._failed or self._to_bury or self._replays.has_unsaved()):
            return False
        as_holder = self._work.as_holder
        try:
            as_holder(self._replays.save)
            for letter, in_flight in list(self._to_bury.values()):
                self._bury(letter, in_flight)
        except MemoryFull as error:
            self._work.wait_for_memory(error)
            return False
        as_holder(self._spout.commit)
        as_holder(self._failures.release, self._failed)
        self._failed = []
        return True

    def _bury(self, letter: DeadLetter, in_flight: InFlight | None) -> None:
        self._work.as_holder(self._book.bury, letter)
        self._work.settle(letter.message_id, self._spout.dead, in_flight)
        self._replays.drop(letter.message_id)
        self._work.as_holder(self._replays.save_drops)
        del self._to_bury[letter.message_id]
        self.counters.dead += 1
        last = letter.history[-1]
        where = f" in {last.component}" if last.component else ""
        text = f"{last.reason}{where}: {last.error}"
        log.error(
            "Message %r of spout %s is dead after %d attempts: %s", letter.message_id, self.name, last.attempt, text
        )
        self._notify(self._observer.on_dead, letter)

    def _give_up(self, message: Message) -> None:
        """Makes a dead letter of what the source could not read."""
        if self._acker and message.id is not None:
            attempt = self._replays.next_attempt(message.id)
            self._work.put(message.id, 0, attempt, message)
            failed = FailedAttempt(attempt, "failed", self._context.component, message.error, self._clock())
            self._retry(message.id, failed, fatal=True)
            return
        log.error("Spout %s could not read message %r: %s", self.name, message.id, message.error)
        if message.id is not None:
            self._spout.dead(message.id)

    def _notify(self, hook: Callable[..., None], *args: Any) -> None:
        try:
            hook(*args)
        except Exception:
            log.exception("An observer of spout %s failed; its driver goes on.", self.name)

    # -- time ----------------------------------------------------------------------------------------------------

    def _time_out(self, acker: Acker) -> bool:
        """Fails what the store has said nothing about for so long that it must have lost it."""
        if not self._overdue():
            return False
        # Nothing is given up whose event is there, be it one that another driver took and left.
        self._completions.rewind()
        self._failures.rewind()
        while self._consume():
            pass
        now_ms = self._clock()
        for message_id, in_flight in self._overdue():
            self._work.renew_lease()
            if acker.inspect(in_flight.root).state in ("pending", "finished"):
                # Extended, or its event is still to be read: ask again later.
                del self._in_flight[message_id]
                self._in_flight[message_id] = replace(in_flight, deadline_ms=now_ms + self._own_timeout_ms)
                continue
            error = f"the store has lost it: no final event for {self._own_timeout_ms} ms"
            attempt = self._attempt_of(message_id, in_flight.attempt)
            self._retry(message_id, FailedAttempt(attempt, "timeout", "", error, now_ms), False)
        self._save_failures()
        return True

    def _overdue(self) -> list[tuple[MessageId, InFlight]]:
        now_ms = self._clock()
        overdue = takewhile(lambda item: item[1].deadline_ms <= now_ms, self._in_flight.items())
        return list(islice(overdue, _OVERDUE_AT_ONCE))

    def _take_requests(self) -> None:
        """Before the source hands out anything: a message that it hands out by itself may have been asked for."""
        if self._clock() >= self._next_requests_ms:
            in_work = self._in_flight.keys() | self._to_bury.keys()
            for message_id in self._work.as_holder(self._replays.take_requests, but=in_work):
                self._work.finished.pop(message_id, None)  # it was, and is to be emitted once more
            self._next_requests_ms = self._clock() + REQUESTS_EVERY_MS

    def _call_for_replays(self) -> bool:
        due = self._replays.due()
        for message_id in due:
            self._emitter.is_exhausted = False
            self._work.as_holder(self._spout.fail, message_id)
            self._replays.told(message_id)
        return bool(due)
