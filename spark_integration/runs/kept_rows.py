"""Rows that are kept in the store for a later attempt at their messages: as JSON, for people too, and exact."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from redis_acker import Acker
from redis_acker.retries.book import MAX_PAYLOAD_BYTES
from redis_acker.store.message_ids import id_to_text
from spark_integration.runs.tracking import NOTES_EXPIRE_MS

TOO_LONG = "its row has {} characters as JSON, and at most {} are kept for another attempt"

Payload = list[dict[str, Any]]
"""What a retry or a dead letter keeps of a row: one dict of its columns."""


def pack_rows(rows: pa.RecordBatch | pa.Table) -> list[str]:
    """Each row as the JSON of its payload."""
    columns = [_pack(column, kind.type) for column, kind in zip(rows.columns, rows.schema, strict=True)]
    names = rows.schema.names
    return [json.dumps([dict(zip(names, values, strict=True))]) for values in zip(*columns, strict=True)]


def unpack_rows(payloads: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """The rows of payloads. A column that is new since a row was kept is null there; one that is gone is dropped."""
    cells = {name: [payload[0].get(name) for payload in payloads] for name in schema.names}
    return pa.table([_unpack(cells[one.name], one.type) for one in schema], schema=schema)


def bounded(payload: str) -> str:
    """The JSON of a payload, or of the reason why it is not kept."""
    if len(payload) <= MAX_PAYLOAD_BYTES:
        return payload
    return json.dumps(TOO_LONG.format(f"{len(payload):,}", f"{MAX_PAYLOAD_BYTES:,}"))


def put_rows(acker: Acker, name: str, ids: pa.Array, payloads: Sequence[str]) -> None:
    """Keeps what is to be kept of the rows of some messages, under a name."""
    rows = acker.shards.failed_rows(name)
    rows.put({id_to_text(one): payload for one, payload in zip(ids.to_pylist(), payloads, strict=True)})
    rows.expire(NOTES_EXPIRE_MS)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether JSON gives values of a type back as they were."""
    of = pa.types
    if of.is_list(kind) or of.is_large_list(kind):
        return _is_plain(kind.value_type)
    if of.is_struct(kind):
        return all(_is_plain(kind.field(i).type) for i in range(kind.num_fields))
    is_text = of.is_string(kind) or of.is_large_string(kind)
    return bool(is_text or of.is_boolean(kind) or of.is_integer(kind) or of.is_float64(kind) or of.is_null(kind))


def _is_text_like(kind: pa.DataType) -> bool:
    """Whether values of a type can be read again from the text that people know them by."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind))


def _pack(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    if _is_plain(kind):
        return list(column.to_pylist())
    if _is_text_like(kind):
        return list(column.cast(pa.string()).to_pylist())
    cells = (column.slice(i, 1) for i in range(len(column)))
    return [None if cell.null_count else base64.b85encode(_cell_bytes(cell, kind)).decode() for cell in cells]


def _cell_bytes(cell: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> bytes:
    if isinstance(cell, pa.ChunkedArray):
        cell = cell.combine_chunks()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes(cell[0].as_py())
    return bytes(pa.RecordBatch.from_arrays([cell], names=["cell"]).serialize())


def _unpack(values: list[Any], kind: pa.DataType) -> pa.Array:
    if _is_plain(kind):
        return pa.array(values, type=kind)
    if _is_text_like(kind):
        return pa.array(values, type=pa.string()).cast(kind)
    return pa.concat_arrays([_unpack_cell(value, kind) for value in values]) if values else pa.array([], type=kind)


def _unpack_cell(value: str | None, kind: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(1, type=kind)
    stored = base64.b85decode(value)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([stored], type=kind)
    return pa.ipc.read_record_batch(pa.py_buffer(stored), pa.schema([pa.field("cell", kind)])).column(0)
