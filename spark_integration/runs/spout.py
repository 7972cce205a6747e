"""The spout of a run: who holds it, what a dead run left there, and how often its messages have failed."""

from __future__ import annotations

import bisect
import logging
import re
import reprlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from redis_acker import Acker
from redis_acker.errors import SpoutTaken, Unreadable
from redis_acker.retries.book import DeadLetter, FailedAttempt, Retry, RetryBook
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.hashes import json_of
from redis_acker.store.ids import SEQUENCE_BITS, U64Array, roots_at, sequence_of
from redis_acker.store.lease import LEASE_MS, Lease
from redis_acker.store.message_ids import MessageId, id_to_text
from redis_acker.store.progress import RunProgress
from redis_acker.store.streams import Failure
from spark_integration.runs.summary import FailedMessage

RUN = "run"
"""The component that fails roots when the run, and not a row, went wrong. That is no attempt at their messages."""

TAKEN_OVER = "taken over"
"""The component that fails roots in whose place others are. That is no attempt either."""

DIED = "the run died before its job was done"

UNPROVEN = "its server was restarted or replaced, and may have lost its acks"

WAIT_S = 1.2 * LEASE_MS / 1000
"""How long a run waits for its spout: a run that died holds it until its lease ends."""

_MOST_ROWS = 1 << 63

_RUN_NOTE = re.compile(rb"(\d{1,13}) (\d{1,10}) (\d{1,4})")
_MOST_NOTED = 1 << 27
"""Messages of a to_df(): its driver has the ids of all of them in its memory."""

_FAILED_AT_ONCE = 1 << 20

_ROWS_AT_ONCE = 100
"""Kept rows that are read by one command."""

log = logging.getLogger(__name__)


class RunSpout:
    """A spout that a run holds by a lease, so that no other run counts attempts at its messages meanwhile."""

    def __init__(self, acker: Acker, name: str, policy: RetryPolicy, run: Callable[[], str] = str) -> None:
        """run: names the run in whose notes the rows of messages that are given up are kept."""
        self._acker, self._name, self._policy, self._run = acker, name, policy, run
        self.number = acker.spout_number(name)
        self._noted_roots = ""
        self.first_sequence = 0
        """Of the roots that are noted."""
        self.lock = threading.RLock()
        """Whoever reads final events has it."""
        self._lease = Lease(acker, name)
        self._is_held = False

    # -- holding it ----------------------------------------------------------------------------------------------

    def take_lease(self) -> None:
        """Takes the spout, and fails what a to_df() that died has left pending."""
        self._wait_for_lease()
        self._is_held = True
        self._book = RetryBook(self._acker, self._name)
        self._retries: dict[MessageId, Retry] = self._book.load()
        if left := self._acker.shards.run_note(self.number):
            self._fail_left(left)

    def _fail_left(self, note: bytes) -> None:
        """Fails the roots that a run has noted."""
        found, block_size = _RUN_NOTE.fullmatch(note), self._acker.settings.block_size
        first_sequence, count, noted_size = map(int, found.groups()) if found else (0, 0, 0)
        if noted_size != block_size or count > _MOST_NOTED or first_sequence >= 1 << SEQUENCE_BITS:
            log.error("What is noted of a run of spout %s cannot be read: %s", self._name, reprlib.repr(note))
            return
        for at in range(0, count, _FAILED_AT_ONCE):
            places = np.arange(at, min(count, at + _FAILED_AT_ONCE))
            self._acker.fail(roots_at(self.number, first_sequence, places, block_size), component=RUN, error=DIED)

    def start_over(self, progress: RunProgress) -> None:
        """Fails all that a run which died has left pending. Its messages have merely waited in it: that is no attempt
        at them, though some may have timed out by now."""
        progress.rename("")  # first: a worker of that run that is still alive begins nothing more
        left = list(progress.pending())
        for first, rows in left:
            self._acker.fail(progress.roots_of(first, rows), component=RUN, error=DIED)
            self.note_failures(waiting=left)
            self.renew_lease()
        progress.drop()

    def _wait_for_lease(self) -> None:
        """Waits as long as it takes a dead holder's lease to end, then raises SpoutTaken."""
        too_long = threading.Event()
        timer = threading.Timer(WAIT_S, too_long.set)
        timer.start()
        try:
            if not self._lease.take(wait=True, stop=too_long):
                self._lease.take(wait=False, stop=threading.Event())
        finally:
            timer.cancel()

    def renew_lease(self) -> None:
        self._lease.renew()

    def has_lease(self) -> bool:
        if self._is_held:
            try:
                self._lease.renew()
            except SpoutTaken as error:
                log.error("%s", error)
                self._is_held = False
        return self._is_held

    def note_roots(self, roots: U64Array) -> None:
        """Names the roots that the next run fails at once if this one dies."""
        self.first_sequence = sequence_of(int(roots[0]))
        self._noted_roots = f"{self.first_sequence} {len(roots)} {self._acker.settings.block_size}"
        self._acker.shards.put_run_note(self.number, self._noted_roots)

    def forget_roots(self) -> None:
        self._acker.shards.delete_run_note(self.number)

    def close(self) -> None:
        if self._noted_roots and self._acker.shards.run_note(self.number) == self._noted_roots.encode():
            self.forget_roots()
        self._lease.give_up()

    # -- attempts ------------------------------------------------------------------------------------------------

    def known_before(self) -> dict[MessageId, int]:
        """How many attempts have failed, of the messages that are not done or were given up. Those given up have 0."""
        return {**dict.fromkeys(self.dead_ids(), 0), **self.failed_before()}

    def dead_ids(self) -> Iterator[MessageId]:
        """The messages that are dead letters."""
        return self._book.dead_ids()

    def completed(self, message_ids: Iterable[MessageId]) -> None:
        """Forgets that messages have failed, or died, because they are complete now."""
        self.forget(message_ids)
        self._acker.shards.dead(self.number).remove(map(id_to_text, message_ids))

    def failed_before(self) -> dict[MessageId, int]:
        """How many attempts have failed, of the messages that are not done."""
        return {message_id: retry.attempt for message_id, retry in self._retries.items()}

    def due_before(self) -> dict[MessageId, int]:
        """When the next attempt is due at messages that have failed and are not done."""
        return {message_id: retry.due_ms for message_id, retry in self._retries.items()}

    def note_failures(self, *, waiting: Iterable[tuple[int, int]] = ()) -> list[FailedMessage]:
        """Takes all failures out of their stream, as retries for a later run or as dead letters. A timeout is no
        attempt for roots that merely waited: first block sequence and rows of each span of them."""
        spans = sorted(waiting)
        found: list[FailedMessage] = []
        with self._acker.failures(self._name, consumer=RUN) as failures:
            while events := failures.read():
                some = [one for failure in events for one in self._failed_in(failure, spans)]
                self._note(some)
                found += [failed for failed, _ in some]
                failures.release(events)
        return found

    def forget(self, message_ids: Iterable[MessageId]) -> None:
        """Forgets that messages have failed, because they are complete or dead now."""
        self._book.forget([one for one in message_ids if self._retries.pop(one, None)])

    def _is_last(self, attempt: int, fatal: bool = False) -> bool:
        return fatal or attempt >= self._policy.max_attempts

    def _failed_in(self, failure: Failure, waiting: list[tuple[int, int]]) -> Iterator[tuple[FailedMessage, int]]:
        """The messages of a failure that is an attempt at them, each with its time in ms."""
        if failure.component in (RUN, TAKEN_OVER):
            return
        rows = zip(failure.roots.tolist(), failure.message_ids, failure.attempts, failure.after_restart, strict=True)
        for root, message_id, attempt, is_unproven in rows:
            if message_id is None or (failure.reason == "timeout" and self._is_in(root, waiting)):
                continue
            if failure.reason == "timeout" and is_unproven:
                error, dead, is_attempt = UNPROVEN, False, False
            else:
                error, dead, is_attempt = failure.error, self._is_last(attempt, failure.fatal), True
            why = failure.reason, failure.component, error
            yield FailedMessage(message_id, self._name, root, attempt, *why, dead, is_attempt), failure.at_ms

    def _is_in(self, root: int, spans: list[tuple[int, int]]) -> bool:
        at = bisect.bisect_right(spans, (sequence_of(root), _MOST_ROWS)) - 1
        first, rows = spans[at] if at >= 0 else (0, 0)
        return sequence_of(root) < first + -(-rows // self._acker.settings.block_size)

    def _note(self, failed: list[tuple[FailedMessage, int]]) -> None:
        """Stores the attempts of failed messages, or their dead letters."""
        noted: dict[MessageId, Retry] = {}
        dead: dict[MessageId, FailedMessage] = {}
        for one, at_ms in failed:
            assert one.message_id is not None
            noted[one.message_id] = self._add_attempt(one.message_id, one, at_ms)
            if one.dead:
                dead[one.message_id] = one
        self._book.note({message_id: retry for message_id, retry in noted.items() if message_id not in dead})
        payloads = self._kept_rows(dead)
        for message_id, one in dead.items():
            fatal, payload = one.attempt < self._policy.max_attempts, payloads.get(message_id)
            self._book.bury(DeadLetter(message_id, self._name, list(noted[message_id].history), fatal, payload))
        self._drop_rows(payloads)
        self.forget(dead)

    def _kept_rows(self, message_ids: Iterable[MessageId]) -> dict[MessageId, Any]:
        """What workers have kept of the rows of messages."""
        found: dict[MessageId, Any] = {}
        wanted = list(message_ids)
        rows = self._acker.shards.failed_rows(self._run()) if wanted else None
        for at in range(0, len(wanted), _ROWS_AT_ONCE):
            some = wanted[at : at + _ROWS_AT_ONCE]
            texts = rows.get_all(list(map(id_to_text, some))) if rows else []
            for one, text in zip(some, texts, strict=True):
                with suppress(Unreadable):  # as if none had been kept
                    if text and isinstance(row := json_of(text), list | str):
                        found[one] = row
        return found

    def _put_row(self, message_id: MessageId, text: str) -> None:
        """Keeps a row as workers do."""
        self._acker.shards.failed_rows(self._run()).put({id_to_text(message_id): text})

    def _drop_rows(self, message_ids: Iterable[MessageId]) -> None:
        if names := list(map(id_to_text, message_ids)):
            self._acker.shards.failed_rows(self._run()).remove(names)

    def _add_attempt(self, message_id: MessageId, failed: FailedMessage, at_ms: int) -> Retry:
        retry = self._retries.setdefault(message_id, Retry())
        if failed.is_attempt and failed.attempt > retry.attempt:
            retry.history.append(FailedAttempt(failed.attempt, failed.reason, failed.step, failed.error, at_ms))
            retry.due_ms = at_ms + self._policy.pause_ms(failed.attempt)
        return retry
