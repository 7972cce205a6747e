"""A job that tells where its tasks ran: two stages, whose tasks note their host."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.spark.jobs.faults import FIRST_DONE, SECOND_BEGUN, Faults

HOST_VARIABLE = "SPARK_LOCAL_IP"


def run(spark: SparkSession, settings: dict[str, Any]) -> dict[str, Any]:
    faults = Faults(settings["directory"], settings["plan"])

    def first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        faults.reached(FIRST_DONE)

    def second(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        faults.reached(SECOND_BEGUN)
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"id": batch["id"], "host": [os.environ[HOST_VARIABLE]] * len(batch)})

    rows = (
        spark.range(0, settings["rows"], 1, 4)
        .mapInArrow(first, "id long")
        .repartition(4, "id")
        .mapInArrow(second, "id long, host string")
        .collect()
    )
    return {"ids": sorted(row["id"] for row in rows), "hosts": sorted({row["host"] for row in rows})}
