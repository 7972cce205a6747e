"""Rows that leave the job for another application, with their anchors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType

from redis_acker.store.packed import ANCHOR_BYTES, pack_anchor_arrays
from spark_integration.errors import BadFrame
from spark_integration.frames.anchor_columns import has_many
from spark_integration.frames.job import Frames, PlanNode
from spark_integration.frames.tracked_steps import ArrowBatches
from spark_integration.runs.life import RunOptions
from spark_integration.runs.run import HandOverRun
from spark_integration.runs.traces import RunTrace
from spark_integration.runs.tracking import COLUMN, Keys, KeyTables, keys_in
from spark_integration.workers import check_python, map_in_workers

_EDGES = f"{COLUMN}_edges"


def hand_over(node: PlanNode, options: RunOptions, column: str) -> DataFrame:
    """Runs the steps once to learn which rows each message becomes, and acks the message's delivery to the job in
    exchange for the edges of these rows. From then on it is up to whoever has the rows to ack them.

    An edge is a hash of the run, the row and its place among equal rows: the same however often the frame that is
    returned is computed.
    """
    if any(one.group_key for one in node.all_nodes()):
        raise BadFrame(
            "Rows after an aggregation stand for too many messages to name them all: hand rows over before "
            "group_by(), or write the result with write() or sink()."
        )
    inputs = node.inputs()
    for one in inputs.values():
        check_python(one.frame.sparkSession)
    run = HandOverRun(list(inputs.values()), options)
    with run, RunTrace(run.name, [one.name for one in run.inputs], run.inputs) as trace:
        rows = _with_edges(Frames.of_run(run, inputs).of(node), run.name)
        handed_over = _with_anchors(
            rows, _AnchorsStep(run.tracking.tables, column, trace.contexts(run.tracking.tables.value))
        )
        run.hand_over(*_edges_by_key(rows))
    return handed_over


def _with_edges(frame: DataFrame, run: str) -> DataFrame:
    """The keys of each row as an array, and beside it an edge for each of them."""
    rows = frame if has_many(frame) else frame.withColumn(COLUMN, F.array(COLUMN))
    content = F.xxhash64(F.lit(run), F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns))))
    equal_rows = Window.partitionBy(_EDGES).orderBy(_EDGES)
    rows = rows.withColumn(_EDGES, content).withColumn(_EDGES, F.xxhash64(_EDGES, F.row_number().over(equal_rows)))
    return rows.withColumn(_EDGES, F.transform(COLUMN, lambda key: F.xxhash64(F.col(_EDGES), key)))


def _edges_by_key(rows: DataFrame) -> tuple[Keys, Keys]:
    """The keys, and for each the XOR of the edges of its rows."""
    pairs = rows.select(F.explode(F.arrays_zip(F.col(COLUMN).alias("key"), F.col(_EDGES).alias("edge"))).alias("pair"))
    table = pairs.groupBy("pair.key").agg(F.bit_xor("pair.edge").alias("edge")).toArrow()
    return table.column("key").to_numpy(), table.column("edge").to_numpy()


def _with_anchors(rows: DataFrame, step: _AnchorsStep) -> DataFrame:
    column = step.column
    fields = [field for field in rows.schema if field.name not in (COLUMN, _EDGES)]
    if column.lower() in (field.name.lower() for field in fields):
        raise BadFrame(f"The frame has a column {column!r} already: choose another name for the anchors.")
    schema = StructType([*fields, StructField(column, BinaryType())])
    return map_in_workers(rows, step, schema, name="anchors")


@dataclass(frozen=True)
class _AnchorsStep:
    """Writes anchors as other programs read them: 16 bytes for each root, the root and the edge; behind them the
    context of the trace of the few messages that are traced."""

    tables: KeyTables
    column: str
    traces: dict[int, bytes]
    """By the key of the message."""

    def __call__(self, batches: ArrowBatches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch.drop_columns([COLUMN, _EDGES])
            anchors = self._pack(batch.column(COLUMN), batch.column(_EDGES))
            if self.traces:
                anchors = self._with_traces(anchors, batch.column(COLUMN))
            yield pa.RecordBatch.from_arrays([*kept.columns, anchors], names=[*kept.schema.names, self.column])

    def _with_traces(self, anchors: pa.Array, keys: pa.Array) -> pa.Array:
        flat = keys_in(keys)
        rows = np.repeat(np.arange(len(keys)), keys.value_lengths().to_numpy(zero_copy_only=False))
        behind = np.full(len(keys), b"", dtype=object)
        for place in np.flatnonzero(np.isin(flat, list(self.traces)))[::-1].tolist():
            behind[rows[place]] = self.traces[int(flat[place])]
        return pc.binary_join_element_wise(anchors, pa.array(behind, pa.binary()), b"")

    def _pack(self, keys: pa.Array, edges: pa.Array) -> pa.Array:
        flat_keys, flat_edges = keys_in(keys), keys_in(edges).view(np.uint64)
        rows = np.repeat(np.arange(len(keys)), keys.value_lengths().to_numpy(zero_copy_only=False))
        found = [table.find(flat_keys) for table in self.tables.value]
        roots = np.concatenate([roots for roots, _ in found])
        which = np.concatenate([which for _, which in found])
        anchors = np.empty(len(roots), dtype=[("row", "i8"), ("root", "u8"), ("edge", "u8")])
        anchors["row"], anchors["root"], anchors["edge"] = rows[which], roots, flat_edges[which]
        anchors.sort(order=["row", "root"])
        # A root that a row comes from twice is named once, with both edges in one.
        first = np.flatnonzero(
            np.r_[True, (anchors[["row", "root"]][1:] != anchors[["row", "root"]][:-1])][: len(anchors)]
        )
        joined = np.bitwise_xor.reduceat(anchors["edge"], first) if len(first) else anchors["edge"]
        packed = pack_anchor_arrays(anchors["root"][first], joined)
        counts = np.bincount(anchors["row"][first], minlength=len(keys))
        ends = np.concatenate(([0], np.cumsum(counts) * ANCHOR_BYTES))
        without = np.diff(ends) == 0
        bits = pa.py_buffer(np.packbits(~without, bitorder="little").tobytes()) if without.any() else None
        buffers = [bits, pa.py_buffer(ends.astype(np.int32).tobytes()), pa.py_buffer(packed)]
        return pa.Array.from_buffers(pa.binary(), len(keys), buffers)
