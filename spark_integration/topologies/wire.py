"""Deliveries on their way through Spark: how they are packed into rows.

A row holds deliveries to one task, or what one task did. Rows are few and large, so Spark spends little time on them.
"""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle

from redis_acker.errors import BadInput
from redis_acker.store.packed import split_anchors, unpack_anchors
from spark_integration.errors import CutShort

SCHEMA = "part int, task int, data binary"
"""part: the partition it goes to; task: number of the task that the deliveries are for, or RESULT."""

RESULT = -1
"""In place of a task: the row tells the driver what a task counted."""

DRIVER = -1
"""In place of a task that sends deliveries: the driver does."""

MORE = -1
"""In place of a total: more deliveries follow."""

_ARROW = pa.schema([("part", pa.int32()), ("task", pa.int32()), ("data", pa.binary())])
pickle_by_value: Callable[..., bytes] = cloudpickle.dumps
"""Also pickles what a script or a notebook defines, which executors cannot import."""

_SCALARS = frozenset({str, bytes, int, float, bool, type(None)})
_PLAIN, _PICKLED = b"m", b"p"


class TupleDelivery(NamedTuple):
    """One tuple on its way to one task."""

    key: bytes
    """Unique in a run. Tasks work in the order of keys, which is that of the emits and the same in every attempt."""
    stream: int
    """Number of the component and stream it comes from."""
    anchors: bytes
    values: bytes

    def is_only_in(self, roots: Set[int]) -> bool:
        """Whether it is in trees of these roots, and in no other."""
        if not (roots and self.anchors):
            return False
        return all(root in roots for root, _ in unpack_anchors(split_anchors(self.anchors)[0]))


class WireRow(NamedTuple):
    part: int
    task: int
    data: bytes


class Chunk(NamedTuple):
    """Deliveries from one sender to one task. The last one of them says how many there are in all."""

    sender: int
    """Number of a task, or DRIVER."""
    total: int
    """How many deliveries the sender has for the task, or MORE."""
    deliveries: Sequence[tuple[Any, ...]]

    def packed(self) -> bytes:
        return pickle.dumps(tuple(self), protocol=5)

    @classmethod
    def of(cls, sender: int, total: int, deliveries: Sequence[TupleDelivery]) -> Chunk:
        return cls(sender, total, [tuple(one) for one in deliveries])  # named tuples are slow to pickle


def unpack_deliveries(chunks: Iterable[bytes]) -> list[TupleDelivery]:
    """The deliveries in rows for a task, in order."""
    return _in_order(map(_chunk, chunks))


def all_deliveries(chunks: Iterable[bytes], senders: Iterable[int]) -> list[TupleDelivery]:
    """The deliveries of all rows for a task, in order. Raises CutShort unless everything is here that these senders
    have sent it: that the input has ended does not prove it."""
    found, totals = [_chunk(packed) for packed in chunks], dict[int, int]()
    received = dict.fromkeys(senders, 0)
    for chunk in found:
        received[chunk.sender] = received.get(chunk.sender, 0) + len(chunk.deliveries)
        if chunk.total != MORE:
            totals[chunk.sender] = chunk.total
    if received != totals:
        raise CutShort(
            f"The input of a task ended after {sum(received.values()):,} deliveries, before all of them had come: it "
            "has done nothing yet, and Spark runs it again."
        )
    return _in_order(found)


def _chunk(packed: bytes) -> Chunk:
    return Chunk(*pickle.loads(packed))


def _in_order(chunks: Iterable[Chunk]) -> list[TupleDelivery]:
    return sorted(TupleDelivery(*one) for chunk in chunks for one in chunk.deliveries)


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


def to_arrow(rows: Sequence[WireRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


def from_arrow(batch: pa.RecordBatch | pa.Table) -> list[WireRow]:
    return [WireRow(*values) for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
