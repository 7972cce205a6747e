"""The messages of a frame: their ids, read once, and the roots that stand for them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, ShortType, StringType

from redis_acker.message_ids import MessageId, MessageIds, TextIds
from spark_integration.errors import BadFrame
from spark_integration.plans import is_repeatable, stored
from spark_integration.tracking import COLUMN, Keys

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)


@dataclass(frozen=True)
class Source:
    """A frame whose rows are messages. Rows carry a key that is computed from their message id."""

    frame: DataFrame
    spout: str
    message_id: str
    salt: int = 0
    only: tuple[int, ...] | None = None
    """Keys of the messages that are wanted, in a replay."""

    def with_keys(self) -> DataFrame:
        """The frame and its tracking column."""
        frame = self.frame.withColumn(COLUMN, self._key())
        if self.only is None:
            return frame
        wanted = self.frame.sparkSession.createDataFrame(pa.table({COLUMN: pa.array(self.only, type=pa.int64())}))
        return frame.join(F.broadcast(wanted), COLUMN, "left_semi").select(*frame.columns)  # in their order

    def _key(self) -> Column:
        # Sources of one job must not share keys, though they may share message ids.
        return F.xxhash64(F.lit(zlib.crc32(self.spout.encode())), F.lit(self.salt), F.col(f"`{self.message_id}`"))

    def read_ids(self) -> tuple[Source, ReadIds]:
        """Reads all message ids. If two of them have the same key, tries other keys."""
        table = self.with_keys().select(COLUMN, f"`{self.message_id}`").toArrow()
        ids = _wide(table.column(1)).combine_chunks()
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
            return self, ReadIds(keys, ids)
        for place in same.tolist():
            if ids[place] == ids[place + 1]:
                raise BadFrame(
                    f"Message id {ids[place].as_py()!r} is not unique ({len(same):,} of {len(ids):,} rows repeat one): "
                    f"choose a column that names each row, or drop the repetitions by {self.message_id!r}."
                )
        return replace(self, salt=self.salt + 1).read_ids()


@dataclass(frozen=True)
class ReadIds:
    """The messages of a source, in the order of their keys."""

    keys: Keys
    ids: Any = field(repr=False)
    """An Arrow array."""

    @classmethod
    def none(cls) -> ReadIds:
        return cls(np.zeros(0, dtype=np.int64), pa.array([], type=pa.int64()))

    def __len__(self) -> int:
        return len(self.keys)

    def id_at(self, place: int) -> MessageId:
        found: MessageId = self.ids[place].as_py()
        return found

    def message_ids(self) -> MessageIds:
        """The ids as the store takes them."""
        if pa.types.is_integer(self.ids.type):
            integers: MessageIds = self.ids.to_numpy()
            return integers
        _, ends, data = self.ids.buffers()
        offsets = np.frombuffer(ends, dtype=np.int64)[self.ids.offset : self.ids.offset + len(self.ids) + 1]
        return TextIds(offsets, memoryview(data) if data else memoryview(b""), text=_is_text(self.ids.type))

    def attempts(self, failed_before: Mapping[MessageId, int]) -> int | list[int]:
        """The attempt that each message is at, given how many attempts have failed of those that failed before."""
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
        """Those of some ids that are here."""
        known = self._alike(ids)
        if not len(known):
            return []  # at once: to look something up, all ids here would be hashed
        here: list[MessageId] = known.filter(pc.is_in(known, value_set=self.ids)).to_pylist()
        return here

    def _alike(self, ids: Iterable[MessageId]) -> Any:
        """Ids of the type that the ids here have; an earlier run may have used another."""
        kind = int if pa.types.is_integer(self.ids.type) else str if _is_text(self.ids.type) else bytes
        return pa.array([one for one in ids if isinstance(one, kind)], type=self.ids.type)


def _wide(ids: Any) -> Any:
    """Ids in a type that holds all of their kind: those of an earlier run may have been longer, and all of them
    together may be more than 2 GB."""
    if pa.types.is_integer(ids.type):
        return ids.cast(pa.int64())
    return ids.cast(pa.large_string() if _is_text(ids.type) else pa.large_binary())


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def check_frame(frame: DataFrame, *, stable_source: bool | None) -> DataFrame:
    """The frame to be tracked: as it is, or stored if it could give other rows when it is read again."""
    if frame.isStreaming:
        raise BadFrame(
            "A streaming frame has no end, so it cannot be tracked as a whole: call track() on each micro-batch, "
            "inside of foreachBatch()."
        )
    if COLUMN.lower() in (name.lower() for name in frame.columns):
        raise BadFrame(f"The frame has a column {COLUMN!r}, the name of the tracking column: rename yours.")
    if strange := [name for name in frame.columns if "." in name or "`" in name]:
        raise BadFrame(
            f"Python steps cannot take columns with '.' or '`' in their names, such as {strange}: rename them."
        )
    if stable_source is None:
        stable_source = is_repeatable(frame)
    return frame if stable_source else stored(frame)


def check_message_id(frame: DataFrame, message_id: str) -> None:
    if message_id not in frame.columns:
        raise BadFrame(f"There is no column {message_id!r} for the message id: the frame has {frame.columns}.")
    kind = frame.schema[message_id].dataType
    if not isinstance(kind, (StringType, BinaryType, *_INTEGERS)):
        raise BadFrame(
            f"Column {message_id!r} is {kind.simpleString()}, and message ids are strings, bytes or integers: cast it "
            "to string."
        )
