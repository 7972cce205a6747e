"""A frame whose rows are messages, and the keys by which its rows are known."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from redis_acker import Acker
from redis_acker.store.message_ids import MessageId
from spark_integration.runs.books import Books
from spark_integration.runs.tracking import COLUMN, ID
from spark_integration.workers import StoreAddress

_PARTITIONS_A_CORE = 4


@dataclass(frozen=True)
class MessageFrame:
    """A frame whose rows are messages. Each row carries a key that is computed from its message id. Messages with the
    same id have the same key."""

    frame: DataFrame
    spout: str
    message_id: str
    """The column that holds it."""
    keeps_order: bool = False
    """Whether each partition is known to have its rows in the same order when it is read again."""
    salt: int = 0
    only: tuple[int, ...] | None = None
    """In a replay: the keys of the messages that are wanted."""

    @property
    def name(self) -> str:
        return self.spout

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
        rest = [] if has_id_column else [F.col(f"`{self.message_id}`").alias("id")]
        if self.only is None:
            return self.frame.withColumn(COLUMN, F.struct(self._key().alias("key"), *rest))
        return self.with_keys().withColumn(COLUMN, F.struct(F.col(COLUMN).alias("key"), *rest))

    def keys_and_ids(self, cores: int) -> DataFrame:
        """Nothing but keys and ids: in the same partitions and the same order however often it is read, if inputs are
        split for as many cores (workers.split_for)."""
        # Two plain columns: Spark hands a struct to workers more slowly.
        frame = self.with_keys().select(COLUMN, F.col(f"`{self.message_id}`").alias(ID))
        if self.keeps_order and self.only is None:
            return frame
        # By the number given, so that Spark does not put partitions together in another way the next time.
        key = F.col(COLUMN)
        return frame.repartition(_PARTITIONS_A_CORE * cores, key).sortWithinPartitions(key, ID)

    def ids(self, cores: int) -> DataFrame:
        """The ids alone, in the same partitions and the same order: half as much for Spark to hand to workers."""
        return self.keys_and_ids(cores).select(ID)

    def with_only(self, ids: Iterable[MessageId]) -> MessageFrame:
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

    def books(
        self,
        acker: Acker,
        run: str,
        *,
        pass_number: int,
        max_attempts: int,
        known: Mapping[MessageId, int],
        waiting: Collection[MessageId] = (),
        **options: Any,
    ) -> Books:
        """What workers are told. known: how many attempts have failed, of messages that have failed or died before.
        waiting: those of them that wait for another attempt, and are not to be worked on."""
        keys = self.keys_of(known)
        order = sorted(keys)
        return Books(
            StoreAddress.of(acker),
            run,
            acker.spout_number(self.spout),
            self.message_id,
            pass_number,
            max_attempts,
            np.array(order, dtype=np.int64),
            [known[keys[key]] for key in order],
            waiting_keys=np.array([key for key in order if keys[key] in waiting], dtype=np.int64),
            **options,
        )
