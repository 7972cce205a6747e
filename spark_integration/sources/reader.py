"""The streaming source: Spark asks it how far a micro-batch goes, and its tasks read the entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_integration.sources.address import ServerAddress
from spark_integration.sources.offsets import Offset
from spark_integration.sources.options import SourceOptions
from spark_integration.sources.planner import Planner, Range, report_missing
from spark_integration.sources.rows import EntryRows

READ_AT_ONCE = 500
READ_BYTES = 1_000_000
"""What one command reads, and one Arrow batch holds: so many entries, or as many as have about this many bytes, so that
none holds up the server."""

_FIRST = 20

_NO_LIMIT = 2**62


@dataclass
class RangePartition(InputPartition):
    """The entries that one task reads."""

    range: Range


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives twice: in a process beside the driver, which plans, and in tasks, which read."""

    def __init__(self, address: ServerAddress, options: SourceOptions, schema: StructType) -> None:
        self._address, self._options, self._rows = address, options, EntryRows(schema)
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._address.streams(self._options.names), self._options)
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        return Offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self.planner.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_per_trigger
        if isinstance(limit, ReadAllAvailable):
            most = _NO_LIMIT
        return self.planner.latest(self._offset(start), most).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        return self.planner.newest().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [RangePartition(one) for one in self.planner.ranges(self._offset(start), self._offset(end))]

    def commit(self, end: dict[str, Any]) -> None:
        self.planner.commit(self._offset(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        wanted, streams = partition.range, self._address.streams(self._options.names)
        name, at, found, at_once = streams.names[wanted.shard], wanted.after, 0, _FIRST
        while entries := streams.entries(wanted.shard, at, wanted.last, at_once):
            at, found = entries[-1][0].decode(), found + len(entries)
            yield self._rows.batch(name, entries)
            bytes_each = 1 + sum(len(part) for entry in entries for part in entry[1]) // len(entries)
            at_once = max(1, min(READ_AT_ONCE, READ_BYTES // bytes_each))
        if found < wanted.count:
            report_missing(name, wanted.after, wanted.last, wanted.count - found, fail=self._options.missing == "fail")

    def _offset(self, value: dict[str, Any]) -> Offset:
        return Offset.from_json(value, self._options.names)
