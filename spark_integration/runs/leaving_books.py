"""The books of a task whose rows leave for another application: a message is complete when that has acked them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from redis_acker import Token
from redis_acker.errors import TooLate
from redis_acker.store.edges import job_number
from redis_acker.store.ids import U64Array
from redis_acker.store.progress import PENDING, Portion
from spark_integration.runs.books import Books, FailedPlaces, TaskBooks
from spark_integration.runs.deliveries import Leaving, Received
from spark_integration.runs.portions import edges_of, keys_of
from spark_integration.runs.tracking import Keys


class LeavingBooks(TaskBooks):
    """Acks a portion as soon as its sink has returned, before that is noted: an attempt that finds the portion sunk
    does not know which edges were sent on. One that finds it pending works on it again, and sends on the same edges."""

    def __init__(self, books: Books, partition: int, work: Callable[[pa.RecordBatch, Leaving], FailedPlaces]) -> None:
        super().__init__(books, partition, lambda batch: work(batch, self._leaving))
        self._job = job_number(f"spout {books.spout}")

    def _make_pending(self, portion: Portion, batch: pa.RecordBatch, keys: Keys, roots: U64Array) -> bool:
        if self._books.rows:  # of a stream, which has nothing else to try a message again with that fails elsewhere
            self._keep_rows(range(batch.num_rows), batch)
        return super()._make_pending(portion, batch, keys, roots)

    def _work_on(self, portion: Portion, batch: pa.RecordBatch, roots: U64Array) -> FailedPlaces:
        edges = edges_of(keys_of(batch))
        self._leaving = Leaving(Received(np.arange(1, len(roots) + 1), roots, edges, {}), self._job)
        failed = super()._work_on(portion, batch, roots)
        if self._progress.reach(self._place, portion, PENDING) != "kept":
            raise TooLate("The portion has other roots by now, or is done: it is begun again.")
        done = np.setdiff1d(np.arange(len(roots)), [place for some in failed.values() for place in some])
        token = Token.of(f"{self._books.run} {self._place.partition} {self._place.rows}")
        self._acker.ack(roots[done], (edges ^ self._leaving.sent)[done], token=token)
        return failed

    def _ack(self, roots: U64Array, keys: Keys, *, without: set[int]) -> bool:
        return True
