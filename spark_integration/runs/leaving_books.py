"""The books of a task whose rows leave for another application: a message is complete when that has acked them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from redis_acker.store.edges import job_number
from redis_acker.store.hashes import StoredHash
from redis_acker.store.ids import U64Array, sequence_of
from redis_acker.store.run_records import SUNK, DoneKeys, Portion
from spark_integration.runs.books import Books, FailedPlaces, TaskBooks, failed_rows
from spark_integration.runs.deliveries import Leaving, Received
from spark_integration.runs.portions import edges_of, keys_of
from spark_integration.runs.strays import Strays
from spark_integration.runs.tracking import MOST_TRACED, Keys


class LeavingBooks(TaskBooks):
    """What is acked of a portion depends on the edges that were sent on, so it is kept when its sink has returned:
    whoever finds the portion sunk acks the same. Nothing of it is acked before, so that no message is complete whose
    portion another run would do again."""

    def __init__(self, books: Books, partition: int, work: Callable[[pa.RecordBatch, Leaving], FailedPlaces]) -> None:
        super().__init__(books, partition, lambda batch: work(batch, self._leaving))
        self._job = job_number(f"spout {books.spout}")
        self._left: U64Array = np.zeros(0, dtype=np.uint64)
        """The roots with which rows have left."""
        self._kept: DoneKeys | None = None
        # The same messages in every attempt, and fewer than MOST_TRACED in all partitions together.
        self._traced = MOST_TRACED >> partition + 1 if books.trace else 0

    def _strays(self, notes: StoredHash) -> Strays:
        kept = self._acker.shards.failed_rows(self._books.rows) if self._books.rows else None
        return Strays(notes, self._books.message_id, self._books.waiting_keys, kept)

    def _make_pending(self, portion: Portion, batch: pa.RecordBatch, keys: Keys, roots: U64Array) -> bool:
        if self._books.rows:  # of a stream, which has nothing else to try a message again with that fails elsewhere
            self._keep_rows(range(batch.num_rows), batch)
        return super()._make_pending(portion, batch, keys, roots)

    def _work_on(self, portion: Portion, batch: pa.RecordBatch, roots: U64Array) -> FailedPlaces:
        edges = edges_of(keys_of(batch))
        traced = range(min(len(roots), self._traced - self._place.rows))
        traces = dict.fromkeys(traced, self._books.trace)
        self._leaving = Leaving(Received(np.arange(1, len(roots) + 1), roots, edges, traces), self._job)
        self._left = roots
        return super()._work_on(portion, batch, roots)

    def _is_worked_on(self, roots: U64Array) -> bool:
        return np.array_equal(self._left, roots)

    def _reach_sunk(self, portion: Portion, keys: Keys, failed: FailedPlaces) -> bool:
        ack_vals, places = edges_of(keys) ^ self._leaving.sent, failed_rows(failed)
        ack_vals[list(places)] = 0
        self._kept = DoneKeys(portion.first, len(places), keys, ack_vals)
        return self._progress.reach(self._place, portion, SUNK, len(places), kept=self._kept) == "kept"

    def _ack(self, roots: U64Array, keys: Keys, *, without: set[int]) -> bool:
        first = sequence_of(int(roots[0]))
        is_own = self._kept is not None and self._kept.first == first
        kept = self._kept if is_own else self._progress.done_keys_of(first)
        if kept is not None and kept.ack_vals is not None:
            is_open = kept.ack_vals != 0
            self._acker.ack(roots[is_open], kept.ack_vals[is_open], token=self._token())
        if not self._books.keeps_keys:
            self._progress.forget_keys(first)
        return True
