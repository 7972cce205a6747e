"""The messages of a job that hands its rows over: their ids are collected, because every row leaves with its roots."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from redis_acker import Acker
from redis_acker.errors import AckerError
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.ids import U64Array, roots_at
from redis_acker.store.message_ids import MessageId, MessageIds, check_message_ids
from redis_acker.store.progress import RunProgress
from spark_integration.errors import BadFrame
from spark_integration.runs.messages import MessageFrame
from spark_integration.runs.portions import edges_of, is_text, message_ids_of, wide
from spark_integration.runs.spout import RUN, RunSpout
from spark_integration.runs.tally import Tally
from spark_integration.runs.tracking import COLUMN, Keys, Places, check_size, edges_for, find_places

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MessageTable:
    """The roots of messages: keys in ascending order, each at the place of its root."""

    keys: Keys
    spout: int
    first_sequence: int
    block_size: int
    notes = ""

    def find(self, keys: Keys) -> tuple[U64Array, Places]:
        places, found = find_places(self.keys, keys)
        return roots_at(self.spout, self.first_sequence, places, self.block_size), found


@dataclass(frozen=True)
class ReadMessages:
    """Keys and ids of messages, in the order of their keys."""

    keys: Keys
    ids: Any = field(repr=False)
    """An Arrow array."""

    @classmethod
    def none(cls) -> ReadMessages:
        return cls(np.zeros(0, dtype=np.int64), pa.array([], type=pa.int64()))

    def __len__(self) -> int:
        return len(self.keys)

    def message_ids(self) -> MessageIds:
        """The ids as the store takes them."""
        return message_ids_of(self.ids)

    def attempts(self, failed_before: Mapping[MessageId, int]) -> int | list[int]:
        """The attempt that each message is at, given how many attempts at some have failed."""
        known = self._alike(failed_before)
        if not len(known):
            return 1
        places = pc.fill_null(pc.index_in(self.ids, value_set=known), -1).to_numpy()
        if places.max(initial=-1) < 0:
            return 1
        counts = np.array([0, *(failed_before[one] for one in known.to_pylist())])
        attempts: list[int] = (counts[places + 1] + 1).tolist()
        return attempts

    def _alike(self, ids: Iterable[MessageId]) -> Any:
        """Those of some ids that are of the same type as the ids here; an earlier run may have used another."""
        kind = int if pa.types.is_integer(self.ids.type) else str if is_text(self.ids.type) else bytes
        return pa.array([one for one in ids if isinstance(one, kind)], type=self.ids.type)


def read_messages(messages: MessageFrame) -> tuple[MessageFrame, ReadMessages]:
    """Reads all message ids. If two of them have the same key, chooses other keys."""
    table = messages.with_keys().select(COLUMN, f"`{messages.message_id}`").toArrow()
    ids = wide(table.column(1)).combine_chunks()
    if ids.null_count:
        raise BadFrame(
            f"{ids.null_count} of {len(ids):,} rows have no message id: fill column {messages.message_id!r}, or leave "
            "them out with where()."
        )
    keys = table.column(0).to_numpy()
    order = np.argsort(keys)
    keys = keys[order]
    ids = ids.take(pa.array(order))
    same = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(same):
        return messages, ReadMessages(keys, ids)
    for place in same.tolist():
        if ids[place] == ids[place + 1]:
            raise BadFrame(
                f"Message id {ids[place].as_py()!r} is not unique ({len(same):,} of {len(ids):,} rows repeat one): "
                f"choose a column that names each row, or drop the repetitions by {messages.message_id!r}."
            )
    return read_messages(replace(messages, salt=messages.salt + 1))


class CollectedMessages:
    """Messages in a run that hands them over: until then it holds their spout, and each has a root."""

    def __init__(self, messages: MessageFrame, acker: Acker, retries: RetryPolicy) -> None:
        self._messages, self._acker = messages, acker
        self._spout = RunSpout(acker, messages.spout, retries)
        self._tally = Tally(acker, messages.spout, self._spout)
        self._read = ReadMessages.none()
        self._roots: U64Array = np.zeros(0, dtype=np.uint64)

    @property
    def name(self) -> str:
        return self._messages.spout

    def __len__(self) -> int:
        return len(self._read)

    def take_lease(self) -> None:
        self._spout.take_lease()
        self._spout.start_over(RunProgress(self._acker, self._spout.number))
        self._tally.read()
        self._tally.reset()

    def renew_lease(self) -> None:
        self._spout.renew_lease()

    def has_lease(self) -> bool:
        return self._spout.has_lease()

    def counts(self) -> tuple[int, int]:
        self._tally.read()
        return self._tally.completed, self._tally.failed

    def close(self) -> None:
        self._tally.read()
        self._spout.close()

    def with_keys(self) -> DataFrame:
        return self._messages.with_keys()

    def key_table(self) -> MessageTable:
        spout = self._spout
        return MessageTable(self._read.keys, spout.number, spout.first_sequence, self._acker.settings.block_size)

    # -- roots ---------------------------------------------------------------------------------------------------

    def make_pending(self) -> None:
        """Makes a root pending for each message."""
        self._messages, self._read = read_messages(self._messages)
        check_size(self._messages.frame.sparkSession, len(self._read))
        ids = self._read.message_ids()
        check_message_ids(ids, len(self._read))
        roots = self._acker.allocate(self._messages.spout, len(self._read))
        if not len(roots):
            return
        self._spout.note_roots(roots)  # first: if this run dies, the next one fails what the note names
        attempts = self._read.attempts(self._spout.failed_before())
        try:
            # Quiet: nobody may ever read the completions, which are due to what others do with the rows.
            self._acker.init(roots, self._edges(), message_ids=ids, attempts=attempts, quiet=True)
        except AckerError:
            self._abandon(roots)
            raise
        self._roots = roots

    def _abandon(self, roots: U64Array) -> None:
        """Fails what became pending of an init that failed."""
        try:
            for start in range(0, len(roots), self._acker.settings.block_size):
                block = roots[start : start + self._acker.settings.block_size]
                if self._acker.inspect(int(block[0])).state == "pending":
                    self._acker.fail(block, component=RUN, error="not all messages of the run could be made pending")
            self._tally.read()
        except AckerError as error:
            log.error("Some messages of spout %s time out: %s", self._messages.spout, error)

    def _edges(self) -> U64Array:
        """One delivery for each message: to the job as a whole. Edges inside the job cancel out."""
        return edges_of(self._read.keys)

    def extend(self) -> None:
        self._acker.extend(self._roots)

    def hand_over(self, keys: Keys, edges: Keys, token: str) -> None:
        # First: from here on the roots are others' to ack, so the run that follows a dead one must not fail them.
        self._spout.forget_roots()
        self._acker.ack(self._roots, self._edges() ^ edges_for(self._read.keys, keys, edges), token=token)

    def fail(self, error: str) -> None:
        if len(self._roots):
            self._acker.fail(self._roots, component=RUN, error=error)
