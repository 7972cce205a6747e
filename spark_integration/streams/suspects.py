"""Messages that were in work when their worker died: one of them may have killed it. They leave their micro-batch,
which goes on without them, and are tried in jobs of their own until the killer is alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from redis_acker.retries.book import Retry
from redis_acker.store.ids import U64Array, sequence_of
from redis_acker.store.message_ids import MessageId
from redis_acker.store.progress import RunProgress
from spark_integration.frames.frame import TrackedFrame
from spark_integration.runs.done_keys import Settling
from spark_integration.runs.kept_rows import pack_rows
from spark_integration.streams.deaths import death_in, partition_in
from spark_integration.streams.spout import StreamSpout
from spark_integration.streams.tally import StreamTally

if TYPE_CHECKING:
    from spark_integration.streams.query import StreamPlan

MOST_AT_ONCE = 10_000
"""Suspects of one death. The others stay in the micro-batch: if the killer is among them, there is another."""

MOST_CHARS = 16_000_000
"""Characters of their rows, which the store keeps meanwhile."""

log = logging.getLogger(__name__)


class BatchProgress(RunProgress):
    """The progress of a micro-batch. When its job has failed, it knows which messages were in work, and where."""

    def __init__(self, plan: StreamPlan) -> None:
        super().__init__(plan.acker, plan.acker.spout_number(plan.spout))
        self._name_of_spout = plan.spout
        self.in_work: dict[int, list[MessageId]] = {}
        """By partition."""
        self._pending: dict[int, MessageId] = {}

    def leave(self, partition: str) -> U64Array | None:
        if not self.in_work:  # nothing was failed yet
            listed = self._acker.pending(spout=self._name_of_spout)
            self._pending = {one.root: one.message_id for one in listed if one.message_id is not None}
        roots = super().leave(partition)
        known = [] if roots is None else [self._pending[one] for one in roots.tolist() if one in self._pending]
        self.in_work[int(partition.split(":")[1])] = known
        return roots


class Suspects:
    """The suspects of one query. They wait in the retry book, without a failed attempt, so that they survive the query.
    They are not tried before the store knows that their micro-batch leaves them out: if the query dies before that,
    they come with it."""

    def __init__(self, plan: StreamPlan, spout: StreamSpout, tally: StreamTally) -> None:
        self._plan, self._spout, self._tally = plan, spout, tally

    def set_aside(self, tracked: TrackedFrame, progress: BatchProgress, error: BaseException) -> bool:
        """After the job of a micro-batch has failed: whether the micro-batch can go on, without what may have killed a
        worker. If not, the job failed for another reason, or nothing was in work."""
        death = death_in(error)
        if not death:
            return False
        # First: what is left of the job begins and sinks nothing more.
        Settling(self._plan.acker, progress).settle(set())
        self._tally.read()
        found = dict(self._with_rows(tracked, progress, partition_in(error)))
        if not found:
            return False
        log.warning(
            "A worker of spout %s died with %s messages in progress, which are tried again apart from the stream: %s",
            self._plan.spout,
            f"{len(found):,}",
            death,
        )
        self._spout.note_suspects({message_id: retry for message_id, (_, retry) in found.items()})
        self._exclude([key for key, _ in found.values()], progress)
        self._spout.try_suspects(found)
        return True

    def _with_rows(
        self, tracked: TrackedFrame, progress: BatchProgress, partition: int | None
    ) -> Iterator[tuple[MessageId, tuple[int, Retry]]]:
        """What was in work in the partition that failed, or else anywhere, and is not done, with its key."""
        in_work, progress.in_work = progress.in_work, {}
        everywhere = [message_id for some in in_work.values() for message_id in some]
        suspected = in_work.get(-1 if partition is None else partition) or everywhere
        keys = {message_id: key for key, message_id in tracked.keys_of(suspected[:MOST_AT_ONCE]).items()}
        done = np.concatenate([np.zeros(0, dtype=np.int64), *(one.keys for one in progress.done_keys())])
        done_keys = set(np.intersect1d(done, list(keys.values())).tolist())
        now_ms, chars = self._plan.acker.shards.time_ms(0), 0
        for message_id, row in tracked.rows_of(list(keys)):
            [text] = pack_rows(row)
            if keys[message_id] not in done_keys and chars < MOST_CHARS:
                chars += len(text)
                yield message_id, (keys[message_id], Retry([], now_ms, json.loads(text)))

    def _exclude(self, keys: list[int], progress: BatchProgress) -> None:
        """The micro-batch takes messages as done."""
        [first] = self._plan.acker.allocate(self._plan.spout).tolist()
        progress.keep_keys(sequence_of(first), np.array(keys, dtype=np.int64))
