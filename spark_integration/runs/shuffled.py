"""The messages of a job with a shuffle, in one run: workers make them pending, the driver completes or fails them."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from redis_acker import Acker
from redis_acker.errors import StoreLost
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.ids import U64Array
from redis_acker.store.message_ids import MessageId
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import PartitionProgress, RunAbout
from redis_acker.store.stats import Acks
from redis_acker.store.streams import Cause
from spark_integration.errors import OtherRows
from spark_integration.runs.in_stream import RunInStream, Spans
from spark_integration.runs.messages import MessageFrame
from spark_integration.runs.pending import ROOTS_SCHEMA, ROWS_SCHEMA, FindRoots, MakePending
from spark_integration.runs.portions import own_edges
from spark_integration.runs.spout import RUN, TAKEN_OVER, RunSpout
from spark_integration.runs.summary import Summary
from spark_integration.runs.tally import Tally
from spark_integration.runs.tracking import Keys
from spark_integration.workers import cores_for, map_in_workers, split_for

_THREADS = 2
_ACKED_AT_ONCE = 16
"""Portions that are acked before the final events are read."""


class MessagesInRun:
    """Messages in one run: the run holds their spout, and each has a root. Of a message the driver keeps nothing; of a
    portion of messages, where its roots are."""

    def __init__(
        self, messages: MessageFrame, acker: Acker, retries: RetryPolicy, run: str, in_stream: RunInStream | None = None
    ) -> None:
        self._messages, self._acker, self._retries, self._run = messages, acker, retries, run
        self._spout = in_stream.spout if in_stream else RunSpout(acker, messages.spout, retries)
        self._progress = in_stream.progress if in_stream else RunProgress(acker, self._spout.number)
        self._tally = in_stream.tally if in_stream else Tally(acker, messages.spout, self._spout)
        self._told: dict[str, Any] = (
            {"part": in_stream.progress.part, "tells_ids": in_stream.tells_ids} if in_stream else {}
        )
        self._cores = 0
        """For which its partitions are made, each time that they are read."""
        self._portions: list[PartitionProgress] = []
        self._failed = np.zeros(0, dtype=np.uint64)
        """Roots that have failed, ascending."""
        self._acked = 0

    @property
    def _first_name(self) -> str:
        """Of the run while workers make messages pending."""
        return f"{self._run} begins"

    @property
    def name(self) -> str:
        return self._messages.spout

    def __len__(self) -> int:
        return sum(one.rows for one in self._portions)

    @property
    def spans(self) -> Spans:
        """Of the roots of its messages."""
        return [(one.first, one.rows) for one in self._portions]

    @property
    def failed_roots(self) -> list[int]:
        return self._failed.tolist()

    # -- its spout -----------------------------------------------------------------------------------------------

    def take_lease(self) -> None:
        self._spout.take_lease()
        self._spout.start_over(self._progress)
        self._tally.read()
        self._tally.reset()

    def renew_lease(self) -> None:
        self._spout.renew_lease()

    def has_lease(self) -> bool:
        return self._spout.has_lease()

    def extend(self) -> None:
        self._progress.keep()
        for one in self._held():
            self.renew_lease()  # there may be thousands of them
            self._acker.extend(self._progress.roots_of(one.first, one.rows))

    def counts(self) -> tuple[int, int]:
        self._tally.read()
        return self._tally.completed, self._tally.failed

    def _held(self) -> list[PartitionProgress]:
        """Its portions. While they are made, those that there are so far."""
        return self._portions or (self._progress.held() if self._is_stored() else [])

    def _is_stored(self) -> bool:
        """Whether what the store keeps for this spout is this run's."""
        return self._progress.stored_name() in (self._run, self._first_name)

    def close(self) -> None:
        if self._is_stored():
            self._progress.drop()
        self._spout.close()

    # -- the beginning -------------------------------------------------------------------------------------------

    def with_keys(self) -> DataFrame:
        return self._messages.with_keys()

    def make_pending(self) -> None:
        """Workers make a root pending for each message."""
        self._progress.start(self._first_name, self._about())
        books = self._messages.books(
            self._acker,
            self._progress.name,
            pass_number=0,
            max_attempts=self._retries.max_attempts,
            known=self._spout.known_before(),
            **self._told,
        )
        read = self._messages.keys_and_ids if len(books.known_keys) else self._messages.ids
        self._cores = cores_for(self._messages.frame)
        with split_for(self._messages.frame, self._cores):
            told = map_in_workers(read(self._cores), MakePending(books), ROWS_SCHEMA, name="pending").collect()
        # First: an attempt that Spark has forgotten may still run, and must not change what is read here.
        self._progress.rename(self._run)
        self._portions = self._in_use(self._progress.held(), {row.partition: row.rows for row in told})

    def _about(self) -> RunAbout:
        where = f"{socket.gethostname()} pid {os.getpid()}"
        return RunAbout(self._messages.spout, self._acker.shards.time_ms(0), where, 0, "", "")

    def _in_use(self, held: list[PartitionProgress], rows: dict[int, int]) -> list[PartitionProgress]:
        """The portions that follow each other from the first row of each partition to the last. Others are left by
        attempts that were too slow, and cut their rows in another way: all of their messages have other roots."""
        ends = dict.fromkeys(rows, 0)
        used: list[PartitionProgress] = []
        for one in held:
            _, partition, offset = one.place
            if ends.get(partition) == offset:
                ends[partition] += one.rows
                used.append(one)
            else:
                roots = self._progress.roots_of(one.first, one.rows)
                self._acker.fail(roots, component=TAKEN_OVER, error="its rows are in other portions")
        if wrong := [partition for partition in rows if ends[partition] != rows[partition]]:
            raise OtherRows(
                f"Partition {wrong[0]} had {ends[wrong[0]]:,} rows at the first reading and {rows[wrong[0]]:,} at "
                "another: store the frame before you track it (checkpoint(), a table or stable_source=False)."
            )
        return used

    # -- the end -------------------------------------------------------------------------------------------------

    def fail_keys(self, failed: dict[Cause, Keys]) -> Keys:
        """Fails the messages behind some keys. Returns the keys that are those of messages here."""
        keys = np.unique(np.concatenate([*failed.values()]))
        finder = FindRoots(self._spout.number, self._acker.settings.block_size, tuple(self._portions), keys)
        with split_for(self._messages.frame, self._cores):
            rows = self._messages.keys_and_ids(self._cores)
            table = map_in_workers(rows, finder, ROOTS_SCHEMA, name="find").toArrow()
        found, roots = table.column("key").to_numpy(), table.column("root").to_numpy().view(np.uint64)
        self._failed = np.union1d(self._failed, roots)
        for cause, some in failed.items():
            which = roots[np.isin(found, some)]
            if len(which):
                self._acker.fail(which, component=cause.component, error=cause.error, fatal=cause.fatal)
        return np.unique(found)

    def check_stored(self) -> None:
        """Raises StoreLost if what the store keeps for this spout is not this run's."""
        if self._progress.stored_name() != self._run:
            raise _lost(self.name)

    def complete(self, token: str) -> None:
        """Acks everything. What has failed stays failed."""
        with ThreadPoolExecutor(_THREADS) as threads:  # one prepares what it sends while the server works for the other
            for begin in range(0, len(self._portions), _ACKED_AT_ONCE):
                some = self._portions[begin : begin + _ACKED_AT_ONCE]
                for acks in threads.map(self._ack, some, [token] * len(some)):
                    self._acked += acks.completed
                    # What is acked is complete. If not, the store keeps the ack vals for an init that it has lost.
                    if acks.applied != acks.completed or acks.duplicates:
                        raise _lost(self.name)
                self._tally.read()

    def _ack(self, one: PartitionProgress, token: str) -> Acks:
        roots = self._without_failed(self._progress.roots_of(one.first, one.rows))
        return self._acker.ack(roots, own_edges(roots), token=token)

    def _without_failed(self, roots: U64Array) -> U64Array:
        """A server may forget that roots have failed: an ack must not complete them then. They time out."""
        begin, end = np.searchsorted(self._failed, roots[:1])[0], np.searchsorted(self._failed, roots[-1:], "right")[0]
        return roots if begin == end else roots[~np.isin(roots, self._failed[begin:end])]

    def fail(self, error: str) -> None:
        """Fails what is pending. It is no attempt: the run failed, not its messages."""
        if self._is_stored():
            self._progress.rename(self._run)  # workers that are still at it begin no more
        held = self._held()
        self._tally.waiting = [(one.first, one.rows) for one in held]  # some may time out before it is their turn
        for one in held:
            self._acker.fail(self._progress.roots_of(one.first, one.rows), component=RUN, error=error)
            self._tally.read()

    def summary(self, seconds: float) -> Summary:
        self._tally.read()
        tally = self._tally
        completed = max(self._acked, tally.completed)  # a reply may be lost, and others may read the stream
        return Summary((self.name,), len(self), completed, tally.dead, tuple(tally.failures.values()), seconds)

    def to_replay(self) -> dict[MessageId, int]:
        """Which messages have failed in this run without being given up, and how often."""
        failed = self._spout.failed_before()
        return {one: failed[one] for one in self._tally.failed_ids & failed.keys()}


def _lost(spout: str) -> StoreLost:
    return StoreLost(
        f"The store has lost roots of spout {spout!r} while the job ran, so not all of its messages count as done: run "
        "it again."
    )
