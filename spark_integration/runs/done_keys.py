"""Messages that are done, by their keys: how a run continues another whose input was split into other partitions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from redis_acker import Acker, Token
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import SUNK, DoneKeys, PartitionProgress
from redis_acker.store.streams import Cause
from spark_integration.runs.keeping import patiently
from spark_integration.runs.portions import edges_of, keys_of, token_of
from spark_integration.runs.spout import DIED, RUN
from spark_integration.runs.tracking import Keys, find_places

_loaded: dict[str, Keys] = {}
"""By run: what this worker has loaded, for the tasks that follow."""


class DoneBefore:
    """Leaves out rows of messages that were done before a run began."""

    def __init__(self, progress: RunProgress, before: int) -> None:
        """before: the first block sequence that may be the run's own. What it does itself must not be left out, since
        other attempts at a task have to see the same rows."""
        self._progress, self._before = progress, before
        self.left_out = 0

    def rest_of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            _, found = find_places(self._keys(), keys_of(batch))
            self.left_out += len(found)
            if len(found):
                batch = batch.take(pa.array(np.delete(np.arange(batch.num_rows), found)))
            yield batch

    def _keys(self) -> Keys:
        run = self._progress.name
        if run not in _loaded:
            done = patiently(lambda: list(self._progress.done_keys()))
            parts = [one.keys for one in done if one.first < self._before]
            _loaded.clear()
            _loaded[run] = np.unique(np.concatenate([*parts, np.zeros(0, dtype=np.int64)]))
        return _loaded[run]


class Settling:
    """Brings a run that died to rest: what its sinks have taken is acked, what else it had in work fails, which is no
    attempt. From then on its keys say what is done, and its partitions do not matter."""

    def __init__(self, acker: Acker, progress: RunProgress) -> None:
        self._acker, self._progress = acker, progress
        self._cause = Cause(RUN, DIED)

    def settle(self, timed_out: set[int]) -> tuple[int, int]:
        """Returns how many messages it has completed, of which some roots have timed out, and the block sequence after
        the last one that it has used for them. Any part of it may be done again."""
        run = self._progress.close()
        _, partitions = self._progress.read()
        sunk = {one.first: one for one in partitions if one.rows and one.stage == SUNK}
        kept: dict[int, DoneKeys] = {}
        completed = before = 0
        for done in self._progress.done_keys():
            completed += len(done.keys) - done.failed
            before = max(before, done.first + 1)
            if done.first in sunk:
                kept[done.first] = done
                completed -= len(timed_out.intersection(self._progress.roots_of(done.first, len(done.keys)).tolist()))
        self._end(run, partitions, kept)
        return completed, before

    def _end(self, run: str, partitions: list[PartitionProgress], kept: dict[int, DoneKeys]) -> None:
        for one in partitions:
            if one.left_rows:
                self._fail(one.left_first, one.left_rows)
            if one.first in kept:
                self._ack(kept[one.first], token_of(run, one.partition, one.done))
            elif one.rows:
                self._fail(one.first, one.rows)
            self._progress.settled(one.partition)

    def _ack(self, done: DoneKeys, token: Token) -> None:
        roots = self._progress.roots_of(done.first, len(done.keys))
        if done.ack_vals is not None:  # the next application completes them
            self._acker.ack(roots[done.ack_vals != 0], done.ack_vals[done.ack_vals != 0], token=token)
            return
        acks = self._acker.ack(roots, edges_of(done.keys), token=token)
        if acks.applied != acks.completed or acks.duplicates:
            # The store has lost their inits, and keeps the acks for them: the messages are not complete.
            self._progress.forget_keys(done.first)

    def _fail(self, first: int, rows: int) -> None:
        self._acker.fail(self._progress.roots_of(first, rows), component=self._cause.component, error=self._cause.error)
