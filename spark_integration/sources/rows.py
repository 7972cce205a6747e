"""Entries of a stream as Arrow batches, and rows as entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType, TimestampType

from spark_integration.errors import BadFrame

SOURCE_SCHEMA = "id string, stream string, entry string, fields map<string, binary>, anchors binary"
"""What a stream is read as, unless a schema is given."""

ANCHORS = "anchors"
"""The field of an entry, and the column of a frame, that has the anchors as bytes."""

FIELDS = "fields"
"""The column that has all fields of an entry."""

ARRIVED = "arrived"
"""A column that a schema may have: when an entry was added, by the clock of its server, if its id is made of that."""

_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: ids that are not made of a time may be greater."""

_OWN = {"id": StringType(), "stream": StringType(), "entry": StringType(), ANCHORS: BinaryType()}

Entry = tuple[bytes, list[bytes]]


def message_id(stream: str, entry: str) -> str:
    """The id of an entry over all streams."""
    return f"{stream}/{entry}"


class EntryRows:
    """Makes Arrow batches of entries."""

    def __init__(self, schema: StructType) -> None:
        for column in schema:
            allowed: list[DataType] = [_OWN[column.name]] if column.name in _OWN else [StringType(), BinaryType()]
            if column.name == ARRIVED:
                allowed.append(TimestampType())
            if column.name == FIELDS:
                allowed = [MapType(StringType(), BinaryType())]
            if column.dataType not in allowed:
                raise BadFrame(
                    f"The column {column.name!r} of a stream is {' or '.join(one.simpleString() for one in allowed)}, "
                    f"not {column.dataType.simpleString()}: cast it when it is read."
                )
        self._names = schema.fieldNames()
        self._types = [column.dataType for column in schema]
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def batch(self, stream: str, entries: Sequence[Entry]) -> pa.RecordBatch:
        ids = [entry[0].decode() for entry in entries]
        fields = [dict(zip(entry[1][::2], entry[1][1::2], strict=True)) for entry in entries]
        columns = [
            self._column(name, kind, stream, ids, fields) for name, kind in zip(self._names, self._types, strict=True)
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, kind: Any, stream: str, ids: list[str], fields: list[dict[bytes, bytes]]) -> list[Any]:
        if name == "id":
            return [message_id(stream, one) for one in ids]
        if name == "stream":
            return [stream] * len(ids)
        if name == "entry":
            return list(ids)
        if isinstance(kind, TimestampType):
            return [1000 * min(int(one.partition("-")[0]), _LATEST_MS) for one in ids]
        if name == FIELDS:
            return [[(key.decode(errors="replace"), value) for key, value in one.items()] for one in fields]
        key = name.encode()
        found = [one.get(key) for one in fields]
        if isinstance(kind, StringType):
            return [None if value is None else value.decode(errors="replace") for value in found]
        return found
