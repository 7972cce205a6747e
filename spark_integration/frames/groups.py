"""Rows in groups: an aggregation, and the key that stands for the messages behind each of its rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_integration.runs.failing import Tracking
from spark_integration.runs.tracking import COLUMN

if TYPE_CHECKING:
    from spark_integration.frames.frame import TrackedFrame


@dataclass(frozen=True)
class GroupKey:
    """How an aggregation names its groups. The key of a group is a hash of the aggregation and the group's columns."""

    columns: tuple[str, ...]
    salt: int = field(default_factory=lambda: random.getrandbits(63))
    """Groups of two aggregations must not share keys, though they may share values."""

    def column(self) -> Column:
        # Nulls count too: a hash alone would leave them out.
        parts = [part for name in self.columns for part in (F.col(name).isNull(), F.col(name))]
        return F.xxhash64(F.lit(self.salt), *parts)


@dataclass(frozen=True)
class GroupedFrame:
    """Rows in groups, to be aggregated."""

    frame: TrackedFrame
    columns: tuple[str, ...]

    def agg(self, *columns: Column) -> TrackedFrame:
        """One row for each group. It stands for every message that went into it: they are complete when it has been
        written, and if it fails in a later step, just these messages fail."""
        group_key = GroupKey(self.columns)

        def build(frames: Sequence[DataFrame], _: Tracking | None) -> DataFrame:
            return frames[0].groupBy(*self.columns).agg(*columns).withColumn(COLUMN, group_key.column())

        return self.frame._then(None, build, group_key)
