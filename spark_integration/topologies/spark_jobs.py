"""The Spark jobs of a topology: one for each micro-batch."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from redis_acker.errors import BadTopology, ServerUnavailable, escaped
from spark_integration.errors import JobFailed, error_of
from spark_integration.topologies.micro_batch import MicroBatch
from spark_integration.topologies.plan import Plan
from spark_integration.topologies.task import Level, level_step, load_step
from spark_integration.topologies.wire import RESULT, SCHEMA, WireRow, from_arrow, to_arrow
from spark_integration.workers import check_python, for_workers

_NUMBERS_PER_PARTITION = 20
"""How many numbers are hashed to find one for each partition. The odds that none is found are one in 485 million."""

_SHOWN = 500
"""Characters of a Spark error that are passed on; the whole of it is in Spark's log."""


class Jobs:
    """Brings micro-batches through the levels of a topology. Uses DataFrames alone, in the session it is given."""

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark, self._plan = spark, plan
        self.most: dict[str, int] = {}
        """Of some BatchBolts, how many tuples of the micro-batch in work they are given at once at most."""

    def check(self, *, store: bool) -> None:
        """Raises an error if Spark runs no jobs, its workers have the wrong Python or another version of this package,
        or they cannot load the bolts; with store=True also if they cannot reach the store."""
        check_python(self._spark)
        try:
            frame = self._spark.createDataFrame(pa.Table.from_batches([to_arrow([WireRow(0, RESULT, b"")])]))
            rows = from_arrow(
                frame.mapInArrow(for_workers(load_step(self._plan, store=store), name="load"), SCHEMA).toArrow()
            )
        except Exception as error:
            if not isinstance(known := error_of(error, ""), JobFailed):
                raise known from error
            raise ServerUnavailable(
                f"Spark cannot run topology {self._plan.topology.name!r}: {short(error)} Check that the session runs "
                "other jobs; Spark's log has the whole error."
            ) from error
        if rows:
            raise BadTopology(
                f"Executors cannot load the bolt {rows[0].data.decode()}. Install its module there, or send it with "
                "spark.addArtifacts()."
            )

    def run(self, batch: MicroBatch, *, is_careful: bool = False) -> list[WireRow]:
        """Runs a micro-batch. Returns what its tasks counted, and deliveries that must wait for the next.

        is_careful: one task after the other, each noting what it works on, so that it is known what a worker dies of.
        """
        return from_arrow(self.frame(batch, is_careful=is_careful).toArrow())

    def frame(self, batch: MicroBatch, *, is_careful: bool = False) -> DataFrame:
        """Deliveries -> the tasks of the first level -> what they emit to those of the next -> ... -> results."""
        frame = self._spark.createDataFrame(batch.table(len(self._plan.tasks)))
        for number in range(len(self._plan.levels)):
            if is_careful:
                frame = frame.repartition(1)
            elif number:
                frame = by_part(frame, self._plan.partitions_at(number))
            step = level_step(Level(self._plan, number, batch.number, is_careful, self.most))
            # Spark's UI shows the name.
            frame = frame.mapInArrow(for_workers(step, name="_and_".join(self._plan.levels[number])), SCHEMA)
        return frame


def by_part(frame: DataFrame, partitions: int) -> DataFrame:
    """Brings each row to the partition that its column `part` names.

    repartition() hashes, so that by `part` itself two tasks would often share a partition while another stays empty.
    It gets the least number that hashes to the partition instead. Only the balance rests on this, never what is
    computed. Spark 4.1 and later have repartitionById() for it.
    """
    numbers = F.sequence(F.lit(0), F.lit(_NUMBERS_PER_PARTITION * partitions))
    partition_of = F.transform(numbers, lambda number: _hash_partition(number, partitions))
    return frame.repartition(partitions, (F.array_position(partition_of, F.col("part")) - 1).cast("int"))


def _hash_partition(number: Column, partitions: int) -> Column:
    return F.pmod(F.hash(number), F.lit(partitions))


def short(error: Exception) -> str:
    """The beginning of an error: those of Spark go on for pages."""
    text = " ".join(str(error).split())
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"{type(error).__name__}: {escaped(text)}"
