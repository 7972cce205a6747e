"""Rows on their way through the steps of a worker, as Arrow columns or as Python values, whichever is at hand."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row

from spark_integration.runs.tracking import Places

_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)
_SHOWN = 200
"""Characters of a wrong value that an error shows."""

_NONE = type(None)
_AS_IS: dict[pa.DataType, set[type]] = {
    pa.string(): {str, _NONE},
    pa.binary(): {bytes, _NONE},
    pa.bool_(): {bool, _NONE},
    pa.float64(): {float, _NONE},
    pa.int64(): {int, _NONE},
}
"""Values that Arrow would give back as they are, so that the next step may have them without a way through Arrow."""


class Misfit(Exception):
    """Raised when a row that a step returned does not fit the step's schema."""


@dataclass(frozen=True)
class Rows:
    """Rows of one schema. Each comes from a row that the worker was given, at a place in its batch."""

    schema: pa.Schema
    columns: Sequence[Any]
    """Of each field: an Arrow array, or its values."""
    places: Places

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Rows:
        """The rows of a batch, each at its own place."""
        return cls(batch.schema, batch.columns, np.arange(batch.num_rows, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.places)

    def as_rows(self) -> Iterable[Row]:
        """Rows whose fields are found without a search."""
        make_row = row_maker(tuple(self.schema.names))
        if not self.columns:
            return repeat(make_row(()), len(self))
        values = [one.to_pylist() if isinstance(one, pa.Array) else one for one in self.columns]
        return map(make_row, zip(*values, strict=True))

    def as_batch(self) -> pa.RecordBatch:
        if not self.columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(self), type=pa.struct([])))
        arrays = [
            one if isinstance(one, pa.Array) else _to_arrow(one, field.type, self.schema)
            for one, field in zip(self.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def with_column(self, name: str, column: pa.Array) -> Rows:
        return Rows(self.schema.append(pa.field(name, column.type)), [*self.columns, column], self.places)

    def without(self, places: Iterable[int]) -> Rows:
        """Without the rows that come from some places."""
        some = np.fromiter(places, dtype=np.int64)
        if not len(some):
            return self
        left_out = np.isin(self.places, some)
        kept = np.flatnonzero(~left_out)
        columns = [
            one.take(pa.array(kept)) if isinstance(one, pa.Array) else [one[i] for i in kept.tolist()]
            for one in self.columns
        ]
        return Rows(self.schema, columns, self.places[kept])


@cache
def row_maker(names: tuple[str, ...]) -> Callable[[Iterable[Any]], Row]:
    """Makes Rows with these names. Many times as fast as Row(*names): they are built without Python code, and a field
    is found as in a namedtuple, without a search."""
    numbered = namedtuple("numbered", [f"field{i}" for i in range(len(names))])  # type: ignore[misc]
    fields = {
        name: vars(numbered)[f"field{i}"]
        for i, name in enumerate(names)
        if name.isidentifier() and not hasattr(Row, name)  # row.count stays the method that it is in a Row
    }
    made = type("Row", (Row,), {**fields, "__fields__": list(names), "__slots__": ()})
    return partial(tuple.__new__, made)


def to_columns(given: list[Any], schema: pa.Schema, *, as_values: bool) -> list[Any]:
    """What a function returned, as columns; raises Misfit if it does not fit. as_values: a column need not be Arrow's
    if its values would come back from there as they are."""
    names = schema.names
    # Both sets are made without Python code for each row.
    if not (
        all(issubclass(kind, (tuple, list)) for kind in set(map(type, given))) and {*map(len, given)} <= {len(names)}
    ):
        given = [_values(row, names) for row in given]
    columns: list[Any] = list(zip(*given, strict=True)) if given else [()] * len(names)
    for i, field in enumerate(schema):
        if not (as_values and _is_as_is(columns[i], field.type)):
            columns[i] = _to_arrow(columns[i], field.type, schema)
    return columns


def _is_as_is(values: Sequence[Any], kind: pa.DataType) -> bool:
    allowed = _AS_IS.get(kind)
    if allowed is None or not (found := set(map(type, values))) <= allowed:
        return False
    if kind != pa.int64():
        return True
    numbers = [one for one in values if one is not None] if _NONE in found else values
    return not numbers or (min(numbers) >= _LEAST and max(numbers) <= _MOST)


def _to_arrow(values: Sequence[Any], kind: pa.DataType, schema: pa.Schema) -> pa.Array:
    try:
        return pa.array(values, type=kind)
    except Exception as error:  # of Arrow, or of a value: a text with half a surrogate pair, for instance
        raise Misfit(f"{error}, declared as {shown(schema)}") from None


def _values(row: Any, names: list[str]) -> Any:
    if isinstance(row, dict):
        if row.keys() - set(names):
            raise Misfit(f"a row has the fields {sorted(map(str, row))}, declared are {names}")
        return [row.get(name) for name in names]
    if not isinstance(row, (tuple, list)) or len(row) != len(names):
        raise Misfit(f"a row must be a tuple, list, dict or Row with {names}, not {shown(row)}")
    return row


def shown(value: Any) -> str:
    text = ", ".join(f"{one.name} {one.type}" for one in value) if isinstance(value, pa.Schema) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
