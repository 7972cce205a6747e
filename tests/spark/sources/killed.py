"""Queries that are killed: a driver of its own, with all its workers, that ends by SIGKILL when the test says so."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_integration import RedisStreamSource, register
from tests.spark.cluster import SMALL
from tests.spark.processes import own_driver
from tests.spark.sources.queries import SCHEMA

OPTIONS: dict[str, Any] = {"max_per_trigger": 1000, "rows_per_partition": 300}


@contextmanager
def driver(kind: str, url: str, stream: str, directory: Path) -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether it is still at work. At the end it is killed."""
    with own_driver("tests.spark.sources.killed", [kind, url, stream, str(directory)]) as process:
        yield lambda: process.poll() is None


def hold(source: RedisStreamSource, directory: Path) -> Callable[[DataFrame, int], None]:
    """A body that has done its work with the second batch, and never returns from it."""

    def body(batch: DataFrame, batch_id: int) -> None:
        rows = batch.collect()
        source.finish(row.id for row in rows)
        (directory / f"{batch_id}.json").write_text(json.dumps(sorted(int(row.number) for row in rows)))
        if batch_id == 1:
            (directory / "held").touch()
            signal.pause()

    return body


def main(kind: str, url: str, stream: str, directory: str) -> None:
    builder = SparkSession.builder.master("local[1,2]")
    for name, value in SMALL.items():
        builder = builder.config(name, value)
    spark, path = builder.getOrCreate(), Path(directory)
    if kind == "source":
        source = RedisStreamSource(url, stream, **OPTIONS)
        writer = source.frame(spark, SCHEMA).writeStream.foreachBatch(hold(source, path))
    else:
        register(spark, url=url)
        reader = spark.readStream.format("redis_acker").schema(SCHEMA).option("stream", stream)
        frame = reader.options(**{name: str(value) for name, value in OPTIONS.items()}).load()
        writer = frame.writeStream.format("redis_acker").options(stream=f"{stream}-target", shards="2")
    writer.option("checkpointLocation", str(path / "state")).start().awaitTermination()


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
