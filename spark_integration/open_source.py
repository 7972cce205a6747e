"""A source in a run: its spout is held, and each of its messages has a root."""

from __future__ import annotations

import threading
import time

import numpy as np

from redis_acker import Acker
from redis_acker.ids import U64Array, roots_at, sequence_of
from redis_acker.lease import LEASE_MS, Lease
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


class OpenSource:
    """From the first message id that is read to the last final event."""

    def __init__(self, source: Source, acker: Acker, policy: RetryPolicy) -> None:
        self.source = source
        self._acker = acker
        self._number = acker.spout_number(source.spout)
        self._note = acker.shard_keys[0].run(self._number)
        self.lease = Lease(acker, source.spout)
        self._books = Books(acker, source.spout, policy)
        self._read = ReadIds.none()
        self.roots: U64Array = np.zeros(0, dtype=np.uint64)
        self._completed = 0
        self._is_held = False

    def __len__(self) -> int:
        return len(self.roots)

    def take(self) -> None:
        """Takes the spout, and ends what a run that died has left pending."""
        self._take_lease()
        self._is_held = True
        if left := self._acker.transport.run_one(Command(0, ("GET", self._note))):
            first_sequence, count, block_size = map(int, left.split())
            roots = roots_at(self._number, first_sequence, np.arange(count), block_size)
            self._acker.fail(roots, component=RUN, error="the run died before its job was done")
        self._books.settle()

    def _take_lease(self) -> None:
        """Waits as long as it takes a dead holder's lease to end, then raises SpoutTaken."""
        too_long = threading.Event()
        timer = threading.Timer(WAIT_S, too_long.set)
        timer.start()
        try:
            if not self.lease.take(wait=True, stop=too_long):
                self.lease.take(wait=False, stop=threading.Event())
        finally:
            timer.cancel()

    def init(self) -> None:
        """Makes a root pending for each message."""
        self.source, self._read = self.source.read_ids()
        self.roots = self._acker.allocate(self.source.spout, len(self._read))
        if len(self.roots):
            # First: whoever follows a run that died fails at once what this names.
            text = f"{sequence_of(int(self.roots[0]))} {len(self.roots)} {self._acker.settings.block_size}"
            self._acker.transport.run_one(Command(0, ("SET", self._note, text)))
        self._acker.init(
            self.roots,
            self._edges(),
            message_ids=self._read.message_ids(),
            attempts=self._read.attempts(self._books.failed_before()),
            quiet=True,
        )

    def _edges(self) -> U64Array:
        """One delivery for each message: to the job as a whole. What happens inside of it cancels out."""
        edges = self._read.keys.view(np.uint64)
        return np.where(edges == 0, np.uint64(1), edges)

    def table(self) -> RootTable:
        """What a Python worker needs to find the root of a row."""
        first = sequence_of(int(self.roots[0])) if len(self.roots) else 0
        return RootTable(self._read.keys, self._number, first, self._acker.settings.block_size)

    def keys_of(self, roots: list[int]) -> tuple[int, ...]:
        """The keys of the messages behind some roots."""
        places = np.searchsorted(self.roots, np.array(roots, dtype=np.uint64))
        keys: list[int] = self._read.keys[places].tolist()
        return tuple(keys)

    def keep(self) -> None:
        """Restarts the clock of what is pending."""
        self._acker.extend(self.roots)

    def complete(self, token: str) -> None:
        """Acks every message. One that has failed stays failed."""
        self._completed = self._acker.ack(self.roots, self._edges(), token=token).completed

    def exchange(self, keys: Keys, deltas: Keys, token: str) -> None:
        """Acks every message's delivery to the job in exchange for the edges of the rows it became."""
        acks = self._acker.ack(self.roots, self._edges() ^ deltas_of(self._read.keys, keys, deltas), token=token)
        self._completed = acks.completed

    def abort(self, error: str) -> None:
        """Fails what is pending."""
        if len(self.roots):
            self._acker.fail(self.roots, component=RUN, error=error)

    def settle(self) -> list[FailedMessage]:
        """The messages that failed. Afterwards the store knows their attempts, and nothing of the others."""
        failed = self._own_failures() if len(self.roots) else []
        if self._completed + len(failed) != len(self.roots):  # an answer was lost, or the store has lost roots
            failed += self._lost({one.root for one in failed})
        self._books.forget(set(self._read.those_of(self._books.failed_before())) - {one.message_id for one in failed})
        return failed

    def _own_failures(self) -> list[FailedMessage]:
        first, last = int(self.roots[0]), int(self.roots[-1])
        return [one for one in self._books.settle() if first <= one.root <= last]

    def _lost(self, failed: set[int]) -> list[FailedMessage]:
        """Messages that the store knows nothing of. Acks of a block are applied together: one root speaks for all."""
        lost: list[FailedMessage] = []
        attempts = self._read.attempts(self._books.failed_before())
        block_size = self._acker.settings.block_size
        for start in range(0, len(self.roots), block_size):
            end = min(start + block_size, len(self.roots))
            places = [place for place in range(start, end) if int(self.roots[place]) not in failed]
            if places and self._acker.inspect(int(self.roots[places[0]])).state in ("orphan", "unknown"):
                for place in places:
                    attempt = attempts if isinstance(attempts, int) else attempts[place]
                    lost.append(self._books.lost(self._read.id_at(place), int(self.roots[place]), attempt))
        self._books.note_lost(lost, int(time.time() * 1000))
        return lost

    def close(self) -> None:
        if not self._is_held:
            return
        self._acker.transport.run_one(Command(0, ("DEL", self._note)))
        self.lease.give_up()
