"""Sinks as they run in Spark's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_integration.steps import RAISED, Batches
from spark_integration.tracking import COLUMN, Cause, Keys, Tracking, keys_in

COUNT_SCHEMA = "rows long"


@dataclass(frozen=True)
class BatchSink:
    """Hands each Arrow batch to a function. If it raises, the roots of that batch fail and the next batch follows."""

    name: str
    function: Callable[[pa.RecordBatch], object]
    tracking: Tracking | None

    def __call__(self, batches: Batches) -> Batches:
        rows = 0
        for batch in batches:
            assert self.tracking is not None
            self.tracking.connect()
            try:
                self.function(batch.drop_columns([COLUMN]))
                rows += batch.num_rows
            except RAISED as error:
                self.tracking.fail(self.name, {Cause.of(error): [keys_in(batch.column(COLUMN))]})
        yield pa.RecordBatch.from_pylist([{"rows": rows}])


@dataclass(frozen=True)
class PartitionSink:
    """Hands an iterator over the Arrow batches of a partition to a function. If it raises, the roots of all rows it has
    taken fail, and those it has not taken too."""

    name: str
    function: Callable[[Iterator[pa.RecordBatch]], Any]
    tracking: Tracking | None

    def __call__(self, batches: Batches) -> Batches:
        assert self.tracking is not None
        self.tracking.connect()
        keys: list[Keys] = []
        rows = 0
        lost: BaseException | None = None

        def handed_out() -> Batches:
            nonlocal rows, lost
            while True:
                try:
                    batch = next(batches, None)
                except BaseException as error:  # of Spark, not of the sink: the task fails, and is tried again
                    lost = error
                    raise
                if batch is None:
                    return
                keys.append(keys_in(batch.column(COLUMN)))
                rows += batch.num_rows
                yield batch.drop_columns([COLUMN])

        handing_out = handed_out()
        try:
            self.function(handing_out)
            error: BaseException | None = None
        except RAISED as raised:
            error = raised
        if lost is not None:
            raise lost
        left = sum(batch.num_rows for batch in handing_out)
        if error is None and left:
            error = ValueError(f"the sink has returned without taking {left} rows of its partition")
        if error is not None and keys:
            self.tracking.fail(self.name, {Cause.of(error): keys})
            rows = 0
        yield pa.RecordBatch.from_pylist([{"rows": rows}])
