"""Bolts that work on many tuples at once."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Sequence
from typing import TYPE_CHECKING

from redis_acker.components.bolt import Bolt, OutputCollector, fail_open
from redis_acker.components.tuples import Tuple
from redis_acker.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa


class BatchBolt(Bolt):
    """A bolt that is given as many tuples as wait for it, for work that is cheaper done on many at once. What it does
    not fail, or ack itself, is acked when it returns."""

    batch_size: int = 1_000
    """Most tuples at once."""

    def process_batch(self, tuples: list[Tuple]) -> None:
        """Works on tuples; emit with self.collector, anchored to the tuple that it comes from. self.collector.fail()
        fails one of them, and an exception fails all that are not finished."""
        raise NotImplementedError

    def execute(self, tup: Tuple) -> None:
        self.execute_batch([tup])

    def execute_batch(self, tuples: list[Tuple]) -> None:
        """What runners call."""
        self.process_batch(tuples)
        for tup in tuples:
            if not tup.outcome:
                self.collector.ack(tup)


def execute_batch(bolt: BatchBolt, collector: OutputCollector, tuples: list[Tuple]) -> bool:
    """Runs a bolt on tuples. An exception fails those that are not finished, and no others. False then."""
    try:
        bolt.execute_batch(tuples)
    except (Exception, CancelledError) as error:
        fail_open(collector, tuples, error)
        return False
    return True


def to_arrow(tuples: Sequence[Tuple], schema: pa.Schema | None = None) -> pa.RecordBatch:
    """The values of tuples as one Arrow batch: a row for each, in their order, and a column for each field. All must
    have the same fields. Without a schema, Arrow infers the types."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise BadInput("to_arrow() needs PyArrow: install it with `pip install pyarrow`.") from error
    kinds = {tup.fields for tup in tuples}
    fields = kinds.pop() if len(kinds) == 1 else ()
    if not fields:
        raise BadInput(
            f"to_arrow() takes tuples with the same named fields, not with {sorted(kinds)}: give it those of one "
            "stream, and name the fields of the component that emits them."
        )
    columns = zip(*(tup.values for tup in tuples), strict=True)
    try:
        rows = dict(zip(fields, map(list, columns), strict=True))
        return pa.RecordBatch.from_pydict(rows, schema=schema)
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise BadInput(f"The values of these tuples do not fit into Arrow columns {list(fields)}: {error}") from error
