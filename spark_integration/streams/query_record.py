"""What ties a query to its spout, and which of its micro-batches are finished."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from redis_acker import Acker
from redis_acker.store.progress import RunProgress
from redis_acker.store.tracked_streams import TrackedStreamRecord, TrackedStreams
from spark_integration.errors import OtherCheckpoint
from spark_integration.runs.in_stream import RunInStream
from spark_integration.streams.spout import StreamSpout
from spark_integration.streams.tally import StreamTally


class QueryRecord:
    """The record of a query's spout, next to Spark's own checkpoint."""

    def __init__(self, acker: Acker, spout: str, message_id: str) -> None:
        self._acker, self._spout, self._message_id = acker, spout, message_id
        self._records = TrackedStreams(acker)

    def check(self, spark: SparkSession, checkpoint: str, *, takes_over: bool) -> None:
        """Raises OtherCheckpoint if what the store knows is about another query or other messages."""
        query, record = query_of(spark, checkpoint), self._records.get(self._spout)
        if query and (others := set(self._records.spouts_of(query)) - {self._spout}):
            raise OtherCheckpoint(
                f"The checkpoint {checkpoint} is that of spout {min(others)!r}, not of {self._spout!r}: each spout "
                "needs a checkpoint of its own."
            )
        if record is None or takes_over:
            self._record = TrackedStreamRecord("", self._message_id)
            return
        if record.query != query:
            found = f"is that of query {query}" if query else "is new"
            raise OtherCheckpoint(
                f"Spout {self._spout!r} has a query with another checkpoint (its id is {record.query}), and the "
                f"checkpoint {checkpoint} {found}: start it with its own, use another spout, or pass takes_over=True "
                "if the query was replaced."
            )
        if record.message_id != self._message_id:
            raise OtherCheckpoint(
                f"Spout {self._spout!r} knows its messages by the column {record.message_id!r}, not by "
                f"{self._message_id!r}: keep the column, or use another spout and another checkpoint."
            )
        self._record = record

    def began(self, query: str) -> None:
        """The query has started under an id."""
        if self._record.query != query:
            self._record = TrackedStreamRecord(query, self._message_id)
            self._records.put(self._spout, self._record)

    def is_finished(self, batch: int) -> bool:
        if batch < self._record.batch:
            raise OtherCheckpoint(
                f"Spark brings micro-batch {batch} of spout {self._spout!r}, and {self._record.batch} is finished "
                "already: the checkpoint is an older copy. Start with the newest, or pass takes_over=True to do again "
                "what was done since."
            )
        return batch == self._record.batch

    def finish(self, batch: int) -> None:
        self._record = replace(self._record, batch=batch)
        self._records.put(self._spout, self._record)

    def in_stream(
        self, spout: StreamSpout, tally: StreamTally, progress: RunProgress, batch: int, **options: Any
    ) -> RunInStream:
        """What the run of a micro-batch is told."""
        query = self._record.query
        name = f"query {query} batch {batch}"
        rows, waiting = spout.rows_name, spout.waiting_now
        return RunInStream(spout, tally, progress, name, query, rows=rows, waiting=waiting, **options)


def query_of(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query that has a checkpoint; empty if it is new."""
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(checkpoint, "metadata")
    files = path.getFileSystem(context.hadoopConfiguration())
    if not files.exists(path):
        return ""
    stream = files.open(path)
    try:
        return str(json.loads(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))["id"])
    finally:
        stream.close()
