"""Python steps as they run in Spark's workers. A row that raises fails its roots; the rows around it go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import Row

from redis_acker.store.streams import Cause
from spark_integration.errors import WrongOutput
from spark_integration.frames.rows import Misfit, Rows, shown, to_columns
from spark_integration.runs.tracking import COLUMN, Places

COUNT_SCHEMA = "rows long"
"""What a sink in a worker gives back."""

RAISED = (Exception, SystemExit)
"""What fails a row and not the task. Command-line parsers raise SystemExit."""


class FailedRows:
    """Collects the rows of a batch that failed: their places in it, by cause."""

    def __init__(self, *, is_replay: bool) -> None:
        """is_replay: all rows are of messages that have failed before."""
        self.by_cause: dict[Cause, list[int]] = {}
        self._is_replay = is_replay

    def add(self, step: str, place: int, error: BaseException) -> None:
        self.by_cause.setdefault(Cause.of(step, error), []).append(place)

    def places(self) -> set[int]:
        return {place for places in self.by_cause.values() for place in places}

    def check_misfits(self, step: str, misfits: int, last: Misfit) -> None:
        """Called when nothing that a step gave for a batch fits: then the step is at fault, and not its data. A single
        row may itself be at fault, and so may the rows of a replay."""
        if misfits > 1 and not self._is_replay:
            raise WrongOutput(f"Step {step!r} gives rows that do not fit its schema: {last}")


class Step(Protocol):
    """A step in Python."""

    @property
    def name(self) -> str: ...

    @property
    def function(self) -> Callable[[Any], Any]: ...

    @property
    def takes_rows(self) -> bool:
        """Whether its function is called with single rows, and not with batches."""

    def apply(self, rows: Rows, failed: FailedRows, *, as_values: bool) -> Rows:
        """What becomes of rows. Those that raise are added to failed. as_values: the next step takes rows."""


@dataclass(frozen=True)
class RowStep:
    """Calls a function with each row; it returns the row, or with gives_many the rows, that take its place."""

    name: str
    function: Callable[[Row], Any]
    schema: pa.Schema
    """Of what the function returns."""
    gives_many: bool = False
    takes_rows = True

    def apply(self, rows: Rows, failed: FailedRows, *, as_values: bool) -> Rows:
        given, places = (self._flat_map if self.gives_many else self._map)(rows, failed)
        try:
            return Rows(self.schema, to_columns(given, self.schema, as_values=as_values), places)
        except Misfit:
            return self._without_misfits(given, places, failed)

    def _map(self, rows: Rows, failed: FailedRows) -> tuple[list[Any], Places]:
        given: list[Any] = []
        failed_at: list[int] = []
        calls = map(self.function, rows.as_rows())
        while len(given) + len(failed_at) < len(rows):
            error: BaseException = RuntimeError("StopIteration")
            try:
                given.extend(calls)  # a loop in C; it ends too early only if the function raises StopIteration
            except RAISED as raised:
                error = raised
            if (place := len(given) + len(failed_at)) < len(rows):
                failed.add(self.name, int(rows.places[place]), error)
                failed_at.append(place)
        return given, np.delete(rows.places, failed_at) if failed_at else rows.places

    def _flat_map(self, rows: Rows, failed: FailedRows) -> tuple[list[Any], Places]:
        function, given, counts = self.function, [], []
        for i, row in enumerate(rows.as_rows()):
            try:
                some = list(function(row))
            except RAISED as error:
                failed.add(self.name, int(rows.places[i]), error)
                some = []
            given += some
            counts.append(len(some))
        return given, np.repeat(rows.places, counts)

    def _without_misfits(self, given: list[Any], places: Places, failed: FailedRows) -> Rows:
        """Leaves out what does not fit, and fails the rows that it comes from."""
        kept: list[int] = []
        misfits: list[Misfit] = []
        starts = np.flatnonzero(np.diff(places, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(places)], strict=True):
            try:
                to_columns(given[start:end], self.schema, as_values=False)
                kept += range(start, end)
            except Misfit as error:
                failed.add(self.name, int(places[start]), error)
                misfits.append(error)
        if not kept:
            failed.check_misfits(self.name, len(misfits), misfits[-1])
        fitting = [given[i] for i in kept]
        return Rows(self.schema, to_columns(fitting, self.schema, as_values=False), places[kept])


@dataclass(frozen=True)
class BatchStep:
    """Calls a function with whole batches. A batch that raises is halved until the rows that raise are found."""

    name: str
    function: Callable[[Any], Any]
    schema: pa.Schema
    pandas: bool = False
    takes_rows = False

    def apply(self, rows: Rows, failed: FailedRows, *, as_values: bool) -> Rows:
        misfits: list[Misfit] = []
        batch = rows.as_batch().append_column(COLUMN, pa.array(rows.places))
        given = list(self._apply(batch, failed, misfits))
        if misfits and len(misfits) == batch.num_rows:
            failed.check_misfits(self.name, len(misfits), misfits[-1])
        schema = self.schema.append(pa.field(COLUMN, pa.int64()))
        made = pa.Table.from_batches(given, schema=schema).combine_chunks()
        whole = made.to_batches()[0] if made.num_rows else pa.RecordBatch.from_pylist([], schema=schema)
        return Rows(self.schema, whole.columns[:-1], whole.column(COLUMN).to_numpy())

    def _apply(self, batch: pa.RecordBatch, failed: FailedRows, misfits: list[Misfit]) -> Iterator[pa.RecordBatch]:
        try:
            given = self._call(batch)
        except WrongOutput:
            raise
        except RAISED as error:
            if batch.num_rows <= 1:
                for place in batch.column(COLUMN).to_pylist():
                    failed.add(self.name, place, error)
                    misfits += [error] if isinstance(error, Misfit) else []
                return
            half = batch.num_rows // 2
            yield from self._apply(batch.slice(0, half), failed, misfits)
            yield from self._apply(batch.slice(half), failed, misfits)
            return
        yield from given.to_batches()

    def _call(self, batch: pa.RecordBatch) -> pa.Table:
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
        try:
            return table.select(wanted).cast(self.schema.append(pa.field(COLUMN, pa.int64())))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise Misfit(f"{error}, declared as {shown(self.schema)}") from None


def _as_table(given: Any, step: str) -> pa.Table:
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        return given
    raise WrongOutput(f"Step {step!r} must give an Arrow batch or table, not {shown(given)}.")
