"""How attempts at messages end: final events are read, what failed is noted or buried, the source is told."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice, takewhile

from redis_acker.driver.deaths import KILLS, Flight
from redis_acker.driver.life import Life, Messages, State
from redis_acker.driver.observer import Reporter
from redis_acker.driver.telling import Teller
from redis_acker.errors import MemoryFull
from redis_acker.retries.book import LETTERS_AT_ONCE, DeadLetter, FailedAttempt, Retry, RetryBook, payload_of
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.acker import Acker
from redis_acker.store.event_reader import READ_COUNT, EventReader
from redis_acker.store.lease import Lease
from redis_acker.store.streams import Cause, Completion, Failure, FinalEvents

_OVERDUE_AT_ONCE = 1_000


class Finisher:
    """Ends the attempts at messages. What became of them is made durable first, then the source is told and commits,
    and only then may the store forget their final events.

    After an error, the next call picks up where it stopped.
    """

    def __init__(
        self,
        acker: Acker,
        messages: Messages,
        lease: Lease,
        book: RetryBook,
        teller: Teller,
        reporter: Reporter,
        flight: Flight,
        *,
        name: str,
        component: str,
        policy: RetryPolicy,
        own_timeout_ms: int,
        holders: Callable[[Collection[int]], dict[int, Cause]],
        clock: Callable[[], int],
    ) -> None:
        self._acker, self._messages, self._lease = acker, messages, lease
        self._book, self._teller, self._reporter, self._flight = book, teller, reporter, flight
        self._name, self._component, self._holders = name, component, holders
        self._policy, self._own_timeout_ms, self._clock = policy, own_timeout_ms, clock
        self._events = EventReader[FinalEvents](acker, name, "completions", "failures", consumer="driver")
        self._completed: list[Completion] = []
        self._failed: list[Failure] = []
        self._settled: list[FinalEvents] = []
        """Dealt with, and to be released."""
        self.is_adopting = True
        """Whether there may still be events that an earlier driver left unread or unreleased."""
        self.has_more = False
        """Whether there may be more events than were read at the last look."""

    def is_idle(self) -> bool:
        """Whether every event that was read is released."""
        return not (self._completed or self._failed or self._settled)

    # -- final events --------------------------------------------------------------------------------------------

    def consume(self) -> bool:
        """Deals with final events. False if there were none, or memory is too full to note failures. The store forgets
        them with the next call, or with release()."""
        self.release()
        self._read()
        busy = self._end_completed()
        for failure in self._failed:
            self._fail(failure)
        busy = self._save_failures() or busy
        if not busy and self.is_idle():
            self.is_adopting = False
        return busy

    def _read(self) -> None:
        """Completions and failures in one call. What was read before an error is dealt with first; only failures for
        which memory is too full do not keep completions waiting."""
        if self._completed:
            return
        self._lease.renew()
        found = self._events.read(only="completions" if self._failed else None)
        self._completed = [event for event in found if isinstance(event, Completion)]
        self._failed += [event for event in found if isinstance(event, Failure)]
        self.has_more = max(len(self._completed), len(self._failed)) >= READ_COUNT

    def _end_completed(self) -> bool:
        if not self._completed:
            return False
        for completion in self._completed:
            self._complete(completion)
        self._teller.commit()
        self._settled += self._completed
        self._completed = []
        return True

    def release(self) -> None:
        """Lets the store forget what is dealt with. Nobody waits for that, so it is done when all else is."""
        if self._settled:
            self._lease.renew()
            self._events.release(self._settled)
            self._settled = []

    def _complete(self, completion: Completion) -> None:
        life_of, tell, completed = self._messages.life_of, self._teller.tell, self._reporter.completed
        roots = completion.roots.tolist()
        for root, message_id, latency_ms in zip(roots, completion.message_ids, completion.ages_ms, strict=True):
            if message_id is not None and self._is_news(life := life_of(message_id), root):
                tell(life, is_dead=False)
                if life.trace:
                    life.trace.end("completed")
                completed(message_id, latency_ms)

    def _fail(self, failure: Failure) -> None:
        roots = failure.roots.tolist()
        is_named = failure.reason != "timeout" or failure.error  # of a topology's own timeout it says who holds it
        holders = {} if is_named else self._holders(roots)
        columns = (roots, failure.message_ids, failure.attempts, failure.ages_ms, failure.after_restart)
        for root, message_id, attempt, age_ms, is_unproven in zip(*columns, strict=True):
            if message_id is not None and self._is_news(life := self._messages.life_of(message_id), root):
                if life.state is State.PENDING:
                    attempt = max(attempt, life.next_attempt)  # a request may know of later ones
                if is_named:
                    cause = Cause(failure.component, failure.error, failure.fatal)
                elif root not in holders and _is_left(life):
                    self._end_left(life, root, attempt, failure.at_ms)
                    continue
                elif root not in holders and is_unproven:
                    self._repeat_unproven(life)
                    continue
                else:
                    cause = holders.get(root) or self._nobody(age_ms)
                self._end_attempt(life, attempt, failure.reason, cause, failure.at_ms)

    def _is_news(self, life: Life, root: int) -> bool:
        """Whether an event is of the pending root, or was left by an earlier driver. Any other is of a root that was
        given up, or of a driver that kept going after this one took over."""
        if life.state is State.PENDING:
            return life.root == root
        return self.is_adopting and life.state in (None, State.WAITING, State.FAILED)

    def _nobody(self, age_ms: int) -> Cause:
        """The cause of a timeout of which only the store knows."""
        return Cause("", f"nothing in this process holds it, {age_ms} ms after it was emitted: another program does")

    # -- failed attempts -----------------------------------------------------------------------------------------

    def _end_attempt(self, life: Life, attempt: int, reason: str, cause: Cause, at_ms: int) -> None:
        """Decides what becomes of a message whose attempt failed. _save_failures() makes it durable."""
        retry = life.retry = life.retry or Retry()
        if attempt <= retry.attempt:
            return  # noted by a driver that was killed before it could release the event
        if not _is_left(life):
            retry.suspicion = None  # it ended while its process lived
        retry.history.append(FailedAttempt(attempt, reason, cause.component, cause.error, at_ms))
        self._reporter.failed(life.id, reason)
        is_last = cause.fatal or attempt >= self._policy.max_attempts
        if life.trace:
            life.trace.end(reason, cause.component, cause.error, is_dead=is_last)
        if is_last:
            life.letter = self._letter(life, retry, cause.fatal)
            self._messages.move(life, State.DYING)
        else:
            retry.due_ms = self._clock() + self._policy.pause_ms(attempt)
            life.message = None  # the source keeps it, and hands it out again
            self._messages.move(life, State.FAILED)

    def _end_left(self, life: Life, root: int, attempt: int, at_ms: int) -> None:
        """Nobody works on a root since its driver ended. That is no attempt, unless its message killed the driver."""
        if self._flight.is_killer(root):
            self._end_attempt(life, attempt, "failed", Cause("", KILLS), at_ms)
        elif life.retry is None or life.retry.attempt < attempt:
            self._flight.accuse(life)
            self._repeat(life)

    def _repeat_unproven(self, life: Life) -> None:
        """The server was restarted or replaced since it was emitted. It may have lost acks, so its timeout is no
        attempt."""
        self._reporter.repeats_unproven()
        if life.trace:
            life.trace.end("timeout", "", "its server was restarted or replaced")
        self._repeat(life)

    def _repeat(self, life: Life) -> None:
        """Emits a message again, under the same attempt."""
        life.retry = life.retry or Retry()
        life.retry.due_ms = self._clock()
        life.message = None  # the source keeps it, and hands it out again
        self._messages.move(life, State.FAILED)

    def give_up(self, life: Life, error: str) -> None:
        """Makes a dead letter of a message that the source could not read."""
        cause = Cause(self._component, error, fatal=True)
        self._end_attempt(life, life.next_attempt, "failed", cause, self._clock())

    def _letter(self, life: Life, retry: Retry, fatal: bool) -> DeadLetter:
        history, message = list(retry.history), life.message
        if message is None:  # emitted by an earlier driver; its values are in the retry book if it was dead or alone
            kept = retry.suspicion if retry.payload is None and retry.suspicion else retry
            return DeadLetter(life.id, self._name, history, fatal, kept.payload, kept.stream)
        payload, is_readable = payload_of(message.values), not message.error
        return DeadLetter(life.id, self._name, history, fatal, payload, message.stream, is_readable)

    def _save_failures(self) -> bool:
        """Makes failures durable, and tells the source what is dead."""
        if not (self._failed or self._messages.all(State.FAILED) or self._messages.all(State.DYING)):
            return False
        try:
            self._note_failed()
            self._bury(list(self._messages.all(State.DYING)))
        except MemoryFull as error:
            self._teller.commit()  # for those that were buried before
            self._reporter.waits_for_memory(error)
            return False
        self._teller.commit()
        self._settled += self._failed
        self._failed = []
        return True

    def _note_failed(self) -> None:
        """Puts failed attempts into the retry book. Their pauses begin only then."""
        failed = list(self._messages.all(State.FAILED))
        if not failed:
            return
        self._lease.renew()
        self._book.note({life.id: life.retry for life in failed if life.retry})
        for life in failed:
            self._messages.move(life, State.WAITING)

    def _bury(self, dying: list[Life]) -> None:
        for at in range(0, len(dying), LETTERS_AT_ONCE):
            some = dying[at : at + LETTERS_AT_ONCE]
            letters = [life.letter for life in some if life.letter]
            self._lease.renew()
            self._book.bury(*letters)
            for life, letter in zip(some, letters, strict=True):
                self._teller.tell(life, is_dead=True)
                self._reporter.dead(letter)

    # -- roots that the store has lost ---------------------------------------------------------------------------

    def time_out(self) -> bool:
        """Fails roots that the store has been silent about for so long that it must have lost them."""
        if not self._overdue():
            return False
        # Nothing is given up while its event is there, even if another driver read it and left it.
        self._events.rewind()
        while self.consume():
            pass
        now_ms, overdue, since_ms = self._clock(), self._overdue(), self._acker.shards.histories_since_ms()
        holders = self._holders([life.root for life in overdue])
        for life in overdue:
            self._lease.renew()
            found = self._acker.inspect(life.root)
            if found.state in ("pending", "finished"):
                # It was extended, or its event is yet to be read: check again later.
                life.deadline_ms = now_ms + self._own_timeout_ms
                self._messages.move(life, State.PENDING)
            elif life.is_adopted and life.root not in holders:
                self._end_left(life, life.root, life.next_attempt, now_ms)
            elif life.root not in holders and life.deadline_ms - self._own_timeout_ms < since_ms[found.shard]:
                self._repeat_unproven(life)
            else:
                cause = self._lost(holders.get(life.root))
                self._end_attempt(life, max(life.attempt, life.next_attempt), "timeout", cause, now_ms)
        self._save_failures()
        return True

    def _lost(self, holder: Cause | None) -> Cause:
        error = f"the store has lost it: no final event for {self._own_timeout_ms} ms"
        return Cause(holder.component, f"{error}; {holder.error}") if holder else Cause("", error)

    def _overdue(self) -> list[Life]:
        now_ms = self._clock()
        overdue = takewhile(lambda life: life.deadline_ms <= now_ms, self._messages.all(State.PENDING))
        return list(islice(overdue, _OVERDUE_AT_ONCE))


def _is_left(life: Life) -> bool:
    """Whether an earlier driver emitted the root of an event. Events of its own come after all that are left."""
    return life.is_adopted or life.state is not State.PENDING
