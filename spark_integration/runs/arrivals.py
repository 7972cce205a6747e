"""How long messages take from their arrival until they are done, as tasks measure it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, AccumulatorParam

from redis_acker import Acker

STEP = 1.05
"""Times are counted in buckets that grow by this: they are known to within 5%."""


def bucket_of(ms: float) -> int:
    return math.ceil(math.log(max(ms, 1.0), STEP))


class Counting(AccumulatorParam["Counter[int]"]):
    """Adds up what tasks have counted. A task that dies, and is not done again, is missing in it."""

    def zero(self, value: Counter[int]) -> Counter[int]:
        return Counter()

    def addInPlace(self, value1: Counter[int], value2: Counter[int]) -> Counter[int]:
        value1.update(value2)
        return value1


@dataclass(frozen=True)
class Arrivals:
    """The column that says when a message has arrived: a timestamp, or milliseconds since 1970."""

    column: str
    counts: Accumulator[Counter[int]]
    """By bucket."""

    def note(self, acker: Acker, batch: pa.RecordBatch, failed: Iterable[int]) -> None:
        """The rows of a batch are done now, by the clock of the store, but for some at these places."""
        times = batch.column(self.column)
        if pa.types.is_timestamp(times.type):
            times = pc.divide(times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
        done = np.delete(times.to_numpy(zero_copy_only=False).astype(np.float64), list(failed))
        waits = acker.shards.time_ms(0) - done[~np.isnan(done)]
        buckets = np.ceil(np.log(np.maximum(waits, 1.0)) / math.log(STEP)).astype(np.int64)
        found, counts = np.unique(buckets, return_counts=True)
        self.counts.add(Counter(dict(zip(found.tolist(), counts.tolist(), strict=True))))
