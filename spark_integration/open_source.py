"""A source in a run: its spout is held, and each of its messages has a root."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np

from redis_acker import Acker
from redis_acker.errors import AckerError
from redis_acker.ids import U64Array, roots_at, sequence_of
from redis_acker.lease import LEASE_MS, Lease, SpoutTaken
from redis_acker.message_ids import check_message_ids
from redis_acker.retries import RetryPolicy
from redis_acker.transport import Command
from spark_integration.books import Books
from spark_integration.source import ReadIds, Source
from spark_integration.summary import FailedMessage
from spark_integration.tracking import Keys, RootTable, deltas_of

RUN = "run"
"""The component that fails roots whose run, not whose row, went wrong."""

WAIT_S = 1.2 * LEASE_MS / 1000
"""How long a run waits for its spout: a run that died holds it until its lease ends."""

log = logging.getLogger(__name__)


class OpenSource:
    """From the first message id that is read to the last final event."""

    def __init__(self, source: Source, acker: Acker, policy: RetryPolicy) -> None:
        self.source = source
        self._acker, self._policy = acker, policy
        self._number = acker.spout_number(source.spout)
        self._note = acker.shard_keys[0].run(self._number)
        self._noted = ""
        self._lease = Lease(acker, source.spout)
        self._is_held = False
        self._read = ReadIds.none()
        self._roots: U64Array = np.zeros(0, dtype=np.uint64)
        self._completed = 0
        self._is_acked = self._is_certain = False

    def __len__(self) -> int:
        return len(self._read)

    # -- the spout -----------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Takes the spout, and ends what a run that died has left pending."""
        self._take_lease()
        self._is_held = True
        self._books = Books(self._acker, self.source.spout, self._policy)
        if left := self._command("GET"):
            first_sequence, count, block_size = map(int, left.split())
            roots = roots_at(self._number, first_sequence, np.arange(count), block_size)
            self._acker.fail(roots, component=RUN, error="the run died before its job was done")
        self._books.settle()
        self._before = self._counts()

    def _take_lease(self) -> None:
        """Waits as long as it takes a dead holder's lease to end, then raises SpoutTaken."""
        too_long = threading.Event()
        timer = threading.Timer(WAIT_S, too_long.set)
        timer.start()
        try:
            if not self._lease.take(wait=True, stop=too_long):
                self._lease.take(wait=False, stop=threading.Event())
        finally:
            timer.cancel()

    def hold(self) -> None:
        self._lease.renew()

    def is_mine(self) -> bool:
        if self._is_held:
            try:
                self._lease.renew()
            except SpoutTaken as error:
                log.error("%s", error)
                self._is_held = False
        return self._is_held

    def close(self) -> None:
        if self._noted and self._command("GET") == self._noted.encode():
            self._command("DEL")
        self._lease.give_up()

    def _command(self, name: str, *args: str) -> bytes | None:
        found: bytes | None = self._acker.transport.run_one(Command(0, (name, self._note, *args)))
        return found

    # -- roots ---------------------------------------------------------------------------------------------------

    def read(self) -> None:
        self.source, self._read = self.source.read_ids()
        check_message_ids(self._read.message_ids(), len(self._read))

    def init(self) -> None:
        """Makes a root pending for each message."""
        roots = self._acker.allocate(self.source.spout, len(self._read))
        if not len(roots):
            return
        # First: whoever follows a run that died fails at once what this names.
        self._noted = f"{sequence_of(int(roots[0]))} {len(roots)} {self._acker.settings.block_size}"
        self._command("SET", self._noted)
        try:
            self._acker.init(
                roots,
                self._edges(),
                message_ids=self._read.message_ids(),
                attempts=self._read.attempts(self._books.failed_before()),
                quiet=True,
            )
        except AckerError:
            self._abandon(roots)
            raise
        self._roots = roots

    def _abandon(self, roots: U64Array) -> None:
        """Fails what became pending of an init that failed. It has not begun, so it is no attempt."""
        try:
            for start in range(0, len(roots), self._acker.settings.block_size):
                block = roots[start : start + self._acker.settings.block_size]
                if self._acker.inspect(int(block[0])).state == "pending":
                    self._acker.fail(block, component=RUN, error="not all messages of the run could be made pending")
            self._books.settle(not_noted=roots)
        except AckerError as error:
            log.error("Some messages of spout %s time out: %s", self.source.spout, error)

    def _edges(self) -> U64Array:
        """One delivery for each message: to the job as a whole. What happens inside of it cancels out."""
        edges = self._read.keys.view(np.uint64)
        return np.where(edges == 0, np.uint64(1), edges)

    def table(self) -> RootTable:
        first = sequence_of(int(self._roots[0])) if len(self._roots) else 0
        return RootTable(self._read.keys, self._number, first, self._acker.settings.block_size)

    def keys_of(self, roots: list[int]) -> tuple[int, ...]:
        places = np.searchsorted(self._roots, np.array(roots, dtype=np.uint64))
        keys: list[int] = self._read.keys[places].tolist()
        return tuple(keys)

    def keep(self) -> None:
        self._acker.extend(self._roots)

    def counts(self) -> tuple[int, int]:
        completed, failed = self._counts()
        return completed - self._before[0], failed - self._before[1]

    def _counts(self) -> tuple[int, int]:
        [found] = [one for one in self._acker.stats().spouts if one.name == self.source.spout]
        return found.completed, found.failed + found.timeout

    # -- final events --------------------------------------------------------------------------------------------

    def complete(self, token: str) -> None:
        self._ack(self._edges(), token)

    def exchange(self, keys: Keys, deltas: Keys, token: str) -> None:
        # First: from here on the roots are others' to ack, and must not be failed by whoever follows a run that died.
        self._command("DEL")
        self._ack(self._edges() ^ deltas_of(self._read.keys, keys, deltas), token)

    def _ack(self, ack_vals: U64Array, token: str) -> None:
        acks = self._acker.ack(self._roots, ack_vals, token=token)
        self._completed, self._is_acked, self._is_certain = acks.completed, True, not acks.duplicates

    def abort(self, error: str) -> None:
        if len(self._roots):
            self._acker.fail(self._roots, component=RUN, error=error)

    def settle(self) -> tuple[int, list[FailedMessage]]:
        """Afterwards the store knows the attempts of what failed, and nothing of the others."""
        if not len(self._roots):
            return 0, []
        first, last = int(self._roots[0]), int(self._roots[-1])
        failed = [one for one in self._books.settle() if first <= one.root <= last]
        if not self._is_acked:
            return 0, failed
        if self._completed + len(failed) != len(self._roots):  # an answer was lost, or the store has lost roots
            failed += self._lost({one.root for one in failed})
        if not self._is_certain:
            self._completed = len(self._roots) - len(failed)
        self._books.forget(set(self._read.those_of(self._books.failed_before())) - {one.message_id for one in failed})
        return self._completed, failed

    def _lost(self, failed: set[int]) -> list[FailedMessage]:
        """Messages that the store knows nothing of. Acks of a block are applied together: one root speaks for all."""
        lost: list[FailedMessage] = []
        attempts = self._read.attempts(self._books.failed_before())
        block_size = self._acker.settings.block_size
        for start in range(0, len(self._roots), block_size):
            end = min(start + block_size, len(self._roots))
            places = [place for place in range(start, end) if int(self._roots[place]) not in failed]
            if places and self._acker.inspect(int(self._roots[places[0]])).state in ("orphan", "unknown"):
                for place in places:
                    attempt = attempts if isinstance(attempts, int) else attempts[place]
                    lost.append(self._books.lost(self._read.id_at(place), int(self._roots[place]), attempt))
        self._books.note_lost(lost, int(time.time() * 1000))
        return lost
