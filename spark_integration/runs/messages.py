"""The messages of a frame: their ids, read once, and the roots that stand for them in a run."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from redis_acker import Acker
from redis_acker.errors import AckerError
from redis_acker.retries.book import RetryPolicy
from redis_acker.store.ids import U64Array
from redis_acker.store.message_ids import MessageId, MessageIds, check_message_ids
from spark_integration.errors import BadFrame
from spark_integration.runs.message_columns import is_text, message_ids_of, wide
from spark_integration.runs.spout import RUN, RunSpout
from spark_integration.runs.summary import FailedMessage
from spark_integration.runs.tracking import COLUMN, Keys, MessageTable, edges_for

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Messages:
    """A frame whose rows are messages. Each row carries a key that is computed from its message id."""

    frame: DataFrame
    spout: str
    message_id: str
    """The column that holds it."""
    salt: int = 0
    only: tuple[int, ...] | None = None
    """In a replay: the keys of the messages that are wanted."""

    @property
    def name(self) -> str:
        return self.spout

    def in_run(self, run: str, acker: Acker, retries: RetryPolicy) -> MessagesInRun:
        return MessagesInRun(self, acker, retries)

    def with_keys(self) -> DataFrame:
        """The frame with the keys of its messages, or of those that are wanted."""
        frame = self.frame.withColumn(COLUMN, self._key())
        if self.only is None:
            return frame
        wanted = self.frame.sparkSession.createDataFrame(pa.table({COLUMN: pa.array(self.only, type=pa.int64())}))
        return frame.join(F.broadcast(wanted), COLUMN, "left_semi").select(*frame.columns)  # in their order

    def with_books(self, *, has_id_column: bool) -> DataFrame:
        """The frame as tasks that keep the books get it: the tracking column is a struct with the key and, unless the
        column of the message ids stays as it is, the id."""
        parts = [F.col(COLUMN).alias("key")]
        if not has_id_column:
            parts.append(F.col(f"`{self.message_id}`").alias("id"))
        return self.with_keys().withColumn(COLUMN, F.struct(*parts))

    def with_only(self, ids: Iterable[MessageId]) -> Messages:
        """Some of the messages, for a replay."""
        return replace(self, only=tuple(self.keys_of(ids)))

    def keys_of(self, ids: Iterable[MessageId]) -> dict[int, MessageId]:
        """The ids that can be in this frame, by their keys. Those of another type were another frame's."""
        kind = self.frame.schema[self.message_id].dataType
        python = {"string": str, "binary": bytes}.get(kind.typeName(), int)
        alike = [one for one in ids if isinstance(one, python)]
        if python is int:
            most = 1 << {"byte": 7, "short": 15, "integer": 31}.get(kind.typeName(), 63)
            alike = [one for one in alike if -most <= int(one) < most]
        if not alike:
            return {}
        column = F.col(f"`{self.message_id}`").cast(kind).alias(self.message_id)
        found = self.frame.sparkSession.createDataFrame(pa.table({self.message_id: pa.array(alike)})).select(column)
        table = found.select(self._key().alias(COLUMN), f"`{self.message_id}`").toArrow()
        return dict(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))

    def _key(self) -> Column:
        # Inputs of one job must not share keys, though they may share message ids.
        return F.xxhash64(F.lit(zlib.crc32(self.spout.encode())), F.lit(self.salt), F.col(f"`{self.message_id}`"))

    def read(self) -> tuple[Messages, ReadMessages]:
        """Reads all message ids. If two of them have the same key, chooses other keys."""
        table = self.with_keys().select(COLUMN, f"`{self.message_id}`").toArrow()
        ids = wide(table.column(1)).combine_chunks()
        if ids.null_count:
            raise BadFrame(
                f"{ids.null_count} of {len(ids):,} rows have no message id: fill column {self.message_id!r}, or leave "
                "them out with where()."
            )
        keys = table.column(0).to_numpy()
        order = np.argsort(keys)
        keys = keys[order]
        ids = ids.take(pa.array(order))
        same = np.flatnonzero(keys[1:] == keys[:-1])
        if not len(same):
            return self, ReadMessages(keys, ids)
        for place in same.tolist():
            if ids[place] == ids[place + 1]:
                raise BadFrame(
                    f"Message id {ids[place].as_py()!r} is not unique ({len(same):,} of {len(ids):,} rows repeat one): "
                    f"choose a column that names each row, or drop the repetitions by {self.message_id!r}."
                )
        return replace(self, salt=self.salt + 1).read()


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

    def id_at(self, place: int) -> MessageId:
        found: MessageId = self.ids[place].as_py()
        return found

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

    def those_of(self, ids: Iterable[MessageId]) -> list[MessageId]:
        """Which of some ids are here."""
        known = self._alike(ids)
        if not len(known):
            return []  # a lookup would hash all ids here
        here: list[MessageId] = known.filter(pc.is_in(known, value_set=self.ids)).to_pylist()
        return here

    def _alike(self, ids: Iterable[MessageId]) -> Any:
        """Those of some ids that are of the same type as the ids here; an earlier run may have used another."""
        kind = int if pa.types.is_integer(self.ids.type) else str if is_text(self.ids.type) else bytes
        return pa.array([one for one in ids if isinstance(one, kind)], type=self.ids.type)


class MessagesInRun:
    """Messages in one run: the run holds their spout, and each has a root."""

    def __init__(self, messages: Messages, acker: Acker, retries: RetryPolicy) -> None:
        self._messages, self._acker = messages, acker
        self._spout = RunSpout(acker, messages.spout, retries)
        self._read = ReadMessages.none()
        self._roots: U64Array = np.zeros(0, dtype=np.uint64)
        self._completed = 0
        self._is_acked = self._is_certain = False

    @property
    def name(self) -> str:
        return self._messages.spout

    def __len__(self) -> int:
        return len(self._read)

    def take_lease(self) -> None:
        self._spout.take_lease()

    def renew_lease(self) -> None:
        self._spout.renew_lease()

    def has_lease(self) -> bool:
        return self._spout.has_lease()

    def counts(self) -> tuple[int, int]:
        return self._spout.counts()

    def close(self) -> None:
        self._spout.close()

    def read(self) -> None:
        self._messages, self._read = self._messages.read()
        check_message_ids(self._read.message_ids(), len(self._read))

    def with_keys(self) -> DataFrame:
        return self._messages.with_keys()

    def only(self, roots: list[int]) -> Messages:
        """The messages behind some roots, for a replay."""
        places = np.searchsorted(self._roots, np.array(roots, dtype=np.uint64))
        return replace(self._messages, only=tuple(self._read.keys[places].tolist()))

    # -- roots ---------------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Makes a root pending for each message."""
        roots = self._acker.allocate(self._messages.spout, len(self._read))
        if not len(roots):
            return
        self._spout.note_roots(roots)  # first: if this run dies, the next one fails what the note names
        try:
            self._acker.init(
                roots,
                self._edges(),
                message_ids=self._read.message_ids(),
                attempts=self._read.attempts(self._spout.failed_before()),
                quiet=True,
            )
        except AckerError:
            self._abandon(roots)
            raise
        self._roots = roots

    def _abandon(self, roots: U64Array) -> None:
        """Fails what became pending of an init that failed. The job has not begun, so this is no attempt."""
        try:
            for start in range(0, len(roots), self._acker.settings.block_size):
                block = roots[start : start + self._acker.settings.block_size]
                if self._acker.inspect(int(block[0])).state == "pending":
                    self._acker.fail(block, component=RUN, error="not all messages of the run could be made pending")
            self._spout.note_failures(without=roots)
        except AckerError as error:
            log.error("Some messages of spout %s time out: %s", self._messages.spout, error)

    def _edges(self) -> U64Array:
        """One delivery for each message: to the job as a whole. Edges inside the job cancel out."""
        edges = self._read.keys.view(np.uint64)
        return np.where(edges == 0, np.uint64(1), edges)

    def key_table(self) -> MessageTable:
        spout = self._spout
        return MessageTable(self._read.keys, spout.number, spout.first_sequence, self._acker.settings.block_size)

    def extend(self) -> None:
        self._acker.extend(self._roots)

    # -- final events --------------------------------------------------------------------------------------------

    def complete(self, token: str) -> None:
        self._ack(self._edges(), token)

    def hand_over(self, keys: Keys, edges: Keys, token: str) -> None:
        # First: from here on the roots are others' to ack, so the run that follows a dead one must not fail them.
        self._spout.forget_roots()
        self._ack(self._edges() ^ edges_for(self._read.keys, keys, edges), token)

    def _ack(self, ack_vals: U64Array, token: str) -> None:
        acks = self._acker.ack(self._roots, ack_vals, token=token)
        self._completed, self._is_acked, self._is_certain = acks.completed, True, not acks.duplicates

    def fail(self, error: str) -> None:
        if len(self._roots):
            self._acker.fail(self._roots, component=RUN, error=error)

    def final_events(self) -> tuple[int, list[FailedMessage]]:
        """Afterwards the store knows the attempts at what failed, and nothing of the rest."""
        if not len(self._roots):
            return 0, []
        first, last = int(self._roots[0]), int(self._roots[-1])
        failed = [one for one in self._spout.note_failures() if first <= one.root <= last]
        if not self._is_acked:
            return 0, failed
        if self._completed + len(failed) != len(self._roots):  # a reply was lost, or the store has lost roots
            failed += self._spout.note_lost(self._lost({one.root for one in failed}))
        if not self._is_certain:
            self._completed = len(self._roots) - len(failed)
        self._spout.forget(set(self._read.those_of(self._spout.failed_before())) - {one.message_id for one in failed})
        return self._completed, failed

    def _lost(self, failed: set[int]) -> Iterator[tuple[MessageId, int, int]]:
        """Id, root and attempt of messages that the store knows nothing of. Acks of a block are applied together, so
        one root speaks for its block."""
        attempts = self._read.attempts(self._spout.failed_before())
        block_size = self._acker.settings.block_size
        for start in range(0, len(self._roots), block_size):
            end = min(start + block_size, len(self._roots))
            places = [place for place in range(start, end) if int(self._roots[place]) not in failed]
            if places and self._acker.inspect(int(self._roots[places[0]])).state in ("orphan", "unknown"):
                for place in places:
                    attempt = attempts if isinstance(attempts, int) else attempts[place]
                    yield self._read.id_at(place), int(self._roots[place]), attempt
