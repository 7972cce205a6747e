"""Deliveries on their way through Spark: how they are packed into rows.

A row holds deliveries to one task, or what one task did. Rows are few and large, so Spark spends little time on them.
"""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle

from redis_acker.errors import BadInput

SCHEMA = "part int, task int, data binary"
"""part: the partition it goes to; task: number of the task that the deliveries are for, or RESULT."""

RESULT = -1
"""In place of a task: the row tells the driver what a task did."""

_ARROW = pa.schema([("part", pa.int32()), ("task", pa.int32()), ("data", pa.binary())])
pickle_by_value: Callable[..., bytes] = cloudpickle.dumps
"""Also pickles what a script or a notebook defines, which executors cannot import."""

_SCALARS = frozenset({str, bytes, int, float, bool, type(None)})
_PLAIN, _PICKLED = b"m", b"p"


class Delivery(NamedTuple):
    """One tuple on its way to one task."""

    key: bytes
    """Unique in a run. Tasks work in the order of keys, which is that of the emits and the same in every attempt."""
    stream: int
    """Number of the component and stream it comes from."""
    anchors: bytes
    values: bytes


class Row(NamedTuple):
    part: int
    task: int
    data: bytes


def pack_deliveries(deliveries: Sequence[Delivery]) -> bytes:
    return pickle.dumps([tuple(one) for one in deliveries], protocol=5)


def unpack_deliveries(chunks: Iterable[bytes]) -> list[Delivery]:
    """The deliveries of all rows for a task, in order."""
    return sorted(Delivery(*one) for chunk in chunks for one in pickle.loads(chunk))


def pack_values(values: Sequence[Any]) -> bytes:
    """The values of a tuple. Strings, bytes, numbers and None always give the same bytes, others those of their
    pickle."""
    plain = tuple(values)
    if all(type(value) in _SCALARS for value in plain):
        # Version 2 has no references: equal values give equal bytes, whether they are one object or two.
        return _PLAIN + marshal.dumps(plain, 2)
    try:
        return _PICKLED + pickle_by_value(plain, protocol=5)
    except Exception as error:
        raise BadInput(
            f"Values that travel between executors must be picklable, and {plain!r:.200} is not: {error}"
        ) from error


def unpack_values(data: bytes) -> tuple[Any, ...]:
    load = marshal.loads if data[:1] == _PLAIN else pickle.loads
    found: tuple[Any, ...] = load(memoryview(data)[1:])
    return found


def to_arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


def from_arrow(batch: pa.RecordBatch | pa.Table) -> list[Row]:
    return [Row(*values) for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
