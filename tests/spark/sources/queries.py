"""Streaming queries over streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "id string, number string"


class Queries:
    """Starts queries whose checkpoint is in one directory."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self._started: list[StreamingQuery] = []

    def frame(self, stream: str, schema: str = SCHEMA, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("redis_acker").schema(schema).option("stream", stream)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    def start(self, frame: DataFrame, body: Callable[[DataFrame, int], None], name: str = "state") -> StreamingQuery:
        """Runs until it is stopped."""
        writer = frame.writeStream.foreachBatch(body).option("checkpointLocation", str(self.directory / name))
        self._started.append(writer.start())
        return self._started[-1]

    def run(self, frame: DataFrame, body: Callable[[DataFrame, int], None] | None = None) -> list[list[int]]:
        """Works off what is there, and returns the numbers of each batch."""
        batches: list[list[int]] = []

        def process(batch: DataFrame, batch_id: int) -> None:
            batches.append([int(row.number) for row in batch.collect()])
            if body is not None:
                body(batch, batch_id)

        writer = frame.writeStream.foreachBatch(process).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.directory / "state")).start()
        self._started.append(query)
        query.awaitTermination()
        return batches

    def stop(self) -> None:
        for query in self._started:
            query.stop()
