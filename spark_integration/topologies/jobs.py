"""The Spark jobs of a topology: one for each micro-batch."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from redis_acker.errors import ServerUnavailable
from redis_acker.topology import BadTopology
from spark_integration.topologies.level import level_step, load_step
from spark_integration.topologies.micro_batch import MicroBatch
from spark_integration.topologies.plan import Plan
from spark_integration.topologies.wire import RESULT, SCHEMA, Row, from_arrow, to_arrow

_SHOWN = 500
"""Characters of an error of Spark that are passed on; the whole of it is in its log."""


class Jobs:
    """Brings micro-batches through the levels of a topology. Uses DataFrames alone, in the session it is given."""

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark, self._plan = spark, plan

    def check(self) -> None:
        """Raises an error if Spark runs no jobs, or its executors cannot load the bolts."""
        try:
            frame = self._spark.createDataFrame(pa.Table.from_batches([to_arrow([Row(0, RESULT, b"")])]))
            rows = from_arrow(frame.mapInArrow(load_step(self._plan), SCHEMA).toArrow())
        except Exception as error:
            raise ServerUnavailable(
                f"Spark cannot run topology {self._plan.topology.name!r}: {short(error)} Executors need the same "
                "version of Python as the driver, with redis-acker and pyarrow."
            ) from error
        if rows:
            raise BadTopology(
                f"Executors cannot load the bolt {rows[0].data.decode()}. Install its module there, or send it with "
                "spark.addArtifacts()."
            )

    def run(self, batch: MicroBatch) -> list[Row]:
        """Runs a micro-batch. Returns what its tasks did, and deliveries that must wait for the next."""
        return from_arrow(self.frame(batch).toArrow())

    def frame(self, batch: MicroBatch) -> DataFrame:
        """Deliveries -> the tasks of the first level -> their emits to those of the next -> ... -> results."""
        frame = self._spark.createDataFrame(batch.table())
        for level in range(len(self._plan.levels)):
            if level:
                frame = frame.repartition(self._plan.partitions_at(level), "part")
            frame = frame.mapInArrow(level_step(self._plan, level, batch.number), SCHEMA)
        return frame


def short(error: Exception) -> str:
    """The beginning of an error: Spark's go on for pages."""
    text = " ".join(str(error).split())
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"{type(error).__name__}: {text}"
