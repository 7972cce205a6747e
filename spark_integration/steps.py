"""Python steps as they run in Spark's workers. A row that raises fails its roots; the rows around it go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Row

from redis_acker.errors import AckerError
from spark_integration.tracking import COLUMN, Cause, Keys, Tracking, keys_in

log = logging.getLogger(__name__)

Batches = Iterator[pa.RecordBatch]

Counts = NDArray[np.int64]
"""How many rows each row has become."""

SEND_EVERY_S = 0.5
"""How long a failed row waits at most for others, so that they are sent together, while rows go on failing."""

RAISED = (Exception, SystemExit)
"""What fails a row and not the task. Parsers of command lines raise SystemExit."""

_TUPLES = {tuple, list, Row}

_SHOWN = 200
"""Characters of a wrong value that an error shows."""


class WrongOutput(AckerError):
    """Raised when no row that a step gives for a batch fits the schema it was declared with."""


class _Misfit(Exception):
    """A row that a step gave does not fit its schema."""


@dataclass(frozen=True)
class RowStep:
    """Calls a function with each row; it gives the row, or if gives_many the rows, that take its place."""

    name: str
    function: Callable[[Row], Any]
    schema: pa.Schema
    """Of what the function gives, without the tracking column."""
    gives_many: bool
    tracking: Tracking | None

    def __call__(self, batches: Batches) -> Batches:
        make_row: Any = None
        for batch in batches:
            _connect(self.tracking)
            cells = batch.column(COLUMN)
            data = batch.drop_columns([COLUMN])
            make_row = make_row or Row(*data.schema.names)
            failed = _FailedRows(self.name, cells, self.tracking)
            rows = _rows(data, make_row)
            given = self._to_batch(*(self._flat_map if self.gives_many else self._map)(rows, failed), cells, failed)
            failed.send()  # before the yield: under a limit what comes after it may never run
            yield given

    def _map(self, rows: Iterable[Row], failed: _FailedRows) -> tuple[list[Any], Counts]:
        function, given = self.function, []
        failed_places = []
        for i, row in enumerate(rows):
            try:
                given.append(function(row))
            except RAISED as error:
                failed.add(i, error)
                failed_places.append(i)
        counts = np.ones(len(given) + len(failed_places), dtype=np.int64)
        counts[failed_places] = 0
        return given, counts

    def _flat_map(self, rows: Iterable[Row], failed: _FailedRows) -> tuple[list[Any], Counts]:
        function, given, counts = self.function, [], []
        for i, row in enumerate(rows):
            try:
                some = list(function(row))
            except RAISED as error:
                failed.add(i, error)
                some = []
            given += some
            counts.append(len(some))
        return given, np.array(counts, dtype=np.int64)

    def _to_batch(self, given: list[Any], counts: Counts, cells: pa.Array, failed: _FailedRows) -> pa.RecordBatch:
        try:
            columns = _to_columns(given, self.schema)
        except _Misfit:
            given, counts = self._without_misfits(given, counts, failed)
            columns = _to_columns(given, self.schema)
        if not bool((counts == 1).all()):
            cells = cells.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        return pa.RecordBatch.from_arrays([*columns, cells], names=[*self.schema.names, COLUMN])

    def _without_misfits(self, given: list[Any], counts: Counts, failed: _FailedRows) -> tuple[list[Any], Counts]:
        """Leaves out what does not fit. If nothing fits, the step is wrong and not its data."""
        kept: list[Any] = []
        counts = counts.copy()
        for i, (end, count) in enumerate(zip(np.cumsum(counts).tolist(), counts.tolist(), strict=True)):
            some = given[end - count : end]
            try:
                _to_columns(some, self.schema)
                kept += some
            except _Misfit as error:
                failed.add(i, error)
                counts[i] = 0
        if not kept:
            failed.raise_if_wrong()
        return kept, counts


@dataclass(frozen=True)
class BatchStep:
    """Calls a function with whole batches. A batch that raises is halved until the rows that raise are found."""

    name: str
    function: Callable[[Any], Any]
    schema: pa.Schema
    pandas: bool
    tracking: Tracking | None

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            _connect(self.tracking)
            failed = _FailedRows(self.name, batch.column(COLUMN), self.tracking)
            given = list(self._apply(batch, 0, failed))
            if failed.misfits == batch.num_rows:
                failed.raise_if_wrong()
            failed.send()
            yield from given

    def _apply(self, batch: pa.RecordBatch, start: int, failed: _FailedRows) -> Batches:
        try:
            given = self._call(batch)
        except WrongOutput:
            raise
        except RAISED as error:
            if batch.num_rows <= 1:
                if batch.num_rows:
                    failed.add(start, error)
                return
            half = batch.num_rows // 2
            yield from self._apply(batch.slice(0, half), start, failed)
            yield from self._apply(batch.slice(half), start + half, failed)
            return
        yield given

    def _call(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        given = self.function(batch.to_pandas() if self.pandas else batch)
        table = pa.Table.from_pandas(given, preserve_index=False) if self.pandas else _as_table(given, self.name)
        if COLUMN not in table.column_names and table.num_rows == batch.num_rows:
            table = table.append_column(COLUMN, batch.column(COLUMN))
        wanted = [*self.schema.names, COLUMN]
        if set(table.column_names) != set(wanted):
            raise WrongOutput(
                f"Step {self.name!r} gives the columns {table.column_names}, {table.num_rows} rows for "
                f"{batch.num_rows}, but was declared with {self.schema.names}: give just these, and the column "
                f"{COLUMN!r} of the rows you keep unless you keep all in their order."
            )
        schema = self.schema.append(pa.field(COLUMN, batch.schema.field(COLUMN).type))
        try:
            table = table.select(wanted).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _Misfit(f"{error}, declared as {_shown(self.schema)}") from None
        return table.combine_chunks().to_batches()[0] if table.num_rows else _empty(schema)


def _as_table(given: Any, step: str) -> pa.Table:
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        return given
    raise WrongOutput(f"Step {step!r} must give an Arrow batch or table, not {_shown(given)}.")


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _rows(batch: pa.RecordBatch, make_row: Callable[..., Row]) -> Iterator[Row]:
    if not batch.num_columns:
        return repeat(make_row(), batch.num_rows)
    return map(make_row, *(column.to_pylist() for column in batch.columns))


class _FailedRows:
    """Collects the rows of a batch that failed, and fails their roots together."""

    def __init__(self, step: str, cells: pa.Array, tracking: Tracking | None) -> None:
        self._step, self._cells, self._tracking = step, cells, tracking
        self._failed: dict[Cause, list[Keys]] = {}
        self._send_at_s = 0.0
        self.misfits = 0
        self.last_misfit: BaseException | None = None

    def add(self, place: int, error: BaseException) -> None:
        if isinstance(error, _Misfit):
            self.misfits += 1
            self.last_misfit = error
        keys = keys_in(self._cells.slice(place, 1))
        if not len(keys):
            log.warning("Step %s raised an error for a row that comes from no message: %s", self._step, error)
        self._failed.setdefault(Cause.of(error), []).append(keys)
        if time.monotonic() >= self._send_at_s:
            self.send()

    def raise_if_wrong(self) -> None:
        """Called when nothing of a batch fits. A single row may be at fault itself, and so may those of a replay."""
        if self.misfits > 1 and not (self._tracking and self._tracking.is_replay):
            raise WrongOutput(f"Step {self._step!r} gives rows that do not fit its schema: {self.last_misfit}")

    def send(self) -> None:
        if self._tracking and self._failed:
            self._tracking.fail(self._step, self._failed)
        self._failed = {}
        self._send_at_s = time.monotonic() + SEND_EVERY_S


def _connect(tracking: Tracking | None) -> None:
    if tracking:
        tracking.connect()


def _to_columns(rows: list[Any], schema: pa.Schema) -> list[pa.Array]:
    """Rows as Arrow columns; raises _Misfit if they do not fit."""
    names = schema.names
    # Both sets are made without Python code for each row.
    if not (set(map(type, rows)) <= _TUPLES and set(map(len, rows)) <= {len(names)}):
        rows = [_values(row, names) for row in rows]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    try:
        return [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    except Exception as error:  # of Arrow, or of a value: a text with half a surrogate pair, for instance
        raise _Misfit(f"{error}, declared as {_shown(schema)}") from None


def _values(row: Any, names: list[str]) -> Any:
    if isinstance(row, dict):
        if row.keys() - set(names):
            raise _Misfit(f"a row has the fields {sorted(map(str, row))}, declared are {names}")
        return [row.get(name) for name in names]
    if not isinstance(row, (tuple, list)) or len(row) != len(names):
        raise _Misfit(f"a row must be a tuple, list, dict or Row with {names}, not {_shown(row)}")
    return row


def _shown(value: Any) -> str:
    text = ", ".join(f"{one.name} {one.type}" for one in value) if isinstance(value, pa.Schema) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
