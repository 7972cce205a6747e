"""The sink: tasks stage their rows, and the driver appends those of the attempts that Spark has chosen."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from redis_acker.spouts.stream_writes import StagedPart, Staging, StreamWrites
from spark_integration.errors import BadFrame
from spark_integration.sources.address import ServerAddress
from spark_integration.sources.options import SinkOptions
from spark_integration.sources.rows import FIELDS

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Staged(WriterCommitMessage):
    """What the attempt of a task has staged."""

    query: str
    parts: list[StagedPart] = field(default_factory=list)


class RowEntries:
    """Makes entries of rows: a field for each column that is not null, and those of the column `fields`."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        for column in schema:
            kind = column.dataType
            if column.name == FIELDS and isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
                continue
            if isinstance(kind, (ArrayType, MapType, StructType)):
                raise BadFrame(
                    f"The column {column.name!r} is {kind.simpleString()}, and a field of an entry is text "
                    "or bytes: write to_json() of it."
                )
        if options.key is not None and options.key not in schema.fieldNames():
            raise BadFrame(f"There is no column {options.key!r} for the option 'key', only {schema.fieldNames()}.")
        self._names = schema.fieldNames()
        self._key, self._shards = options.key, options.shards

    def of(self, batch: pa.RecordBatch, first: int) -> Iterator[tuple[int, list[tuple[bytes, bytes]]]]:
        """The stream and the fields of each row. first: number of the first row, for rows without a key."""
        columns = [_values(column) for column in batch.columns]
        keys = None if self._key is None else columns[self._names.index(self._key)]
        for place in range(batch.num_rows):
            fields: list[tuple[bytes, bytes]] = []
            for name, values in zip(self._names, columns, strict=True):
                value = values[place]
                if isinstance(value, list):
                    fields += [(key.encode(), _as_bytes(one)) for key, one in value if one is not None]
                elif value is not None:
                    fields.append((name.encode(), _as_bytes(value)))
            number = first + place if keys is None else zlib.crc32(_as_bytes(keys[place] or b""))
            yield number % self._shards, fields


def _values(column: pa.Array) -> list[Any]:
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    if not (is_text or is_bytes or pa.types.is_map(column.type)):
        column = pc.cast(column, pa.string())
    values: list[Any] = column.to_pylist()
    return values


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class _Writer:
    """What the sinks of streams and of batches share."""

    def __init__(self, address: ServerAddress, options: SinkOptions, schema: StructType) -> None:
        self._address, self._options, self._entries = address, options, RowEntries(schema, options)

    def _stage(self, batches: Iterable[pa.RecordBatch], query: str, batch: int) -> Staged:
        context = TaskContext.get()
        row = context.partitionId() if context else 0  # rows of several small tasks do not all go to the first stream
        staging = Staging(self._address.streams(self._options.names), query, batch)
        for one in batches:
            for shard, fields in self._entries.of(one, row):
                staging.add(shard, fields)
            row += one.num_rows
        return Staged(query, staging.finish())

    def _writes(self, query: str) -> StreamWrites:
        return StreamWrites(self._address.streams(self._options.names), query)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The sink of a streaming query. Its batches go by the id of the query, which is in its checkpoint."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None
        assert batch is not None
        return self._stage(iterator, query, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for query, parts in _by_query(messages):
            self._writes(query).commit(batchId, parts)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for query, parts in _by_query(messages):
            self._writes(query).abort(batchId, parts)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The sink of one write of a DataFrame."""

    def __init__(self, address: ServerAddress, options: SinkOptions, schema: StructType) -> None:
        super().__init__(address, options, schema)
        self._query = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stage(iterator, self._query, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        writes = self._writes(self._query)
        for _, parts in _by_query(messages):
            writes.commit(0, parts)
        writes.forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        writes = self._writes(self._query)
        for _, parts in _by_query(messages):
            writes.abort(0, parts)
        writes.expire()


def _by_query(messages: list[WriterCommitMessage | None]) -> list[tuple[str, list[StagedPart]]]:
    """The query, and the parts of all its tasks; nothing for a batch without tasks."""
    staged = [one for one in messages if isinstance(one, Staged)]
    return [(staged[0].query, [part for one in staged for part in one.parts])] if staged else []
