"""Each grouping brings tuples to the same tasks as in one process."""

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from redis_acker import TopologyBuilder
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.topology.routing import task_of_key
from spark_integration.topologies.spark_jobs import by_part
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Note, Relay, builder_of, run_locally

TASKS = 3


def test_every_grouping_deals_tuples_out_as_it_should(bench: Bench) -> None:
    builder = builder_of(range(60))
    builder.bolt("relay", Relay(), parallelism=2).shuffle("source")
    builder.bolt("shuffle", Note(bench.notebook), parallelism=TASKS).shuffle("relay")
    builder.bolt("fields", Note(bench.notebook), parallelism=TASKS).fields("relay", "value")
    builder.bolt("all", Note(bench.notebook), parallelism=TASKS).all("relay")
    builder.bolt("global", Note(bench.notebook), parallelism=TASKS).global_("relay")
    bench.run(builder.build())

    notes = {
        name: [note[1:] for note in bench.notebook.read() if note[0] == name] for name in builder.build().components
    }
    assert Counter(value for _, value in notes["shuffle"]) == Counter(range(60))
    dealt = Counter(task for task, _ in notes["shuffle"])
    assert all(15 <= dealt[task] <= 25 for task in range(TASKS))
    assert sorted(notes["fields"]) == sorted((task_of_key([value], TASKS), value) for value in range(60))
    assert sorted(notes["all"]) == sorted((task, value) for task in range(TASKS) for value in range(60))
    assert sorted(notes["global"]) == [(0, value) for value in range(60)]
    assert bench.books() == (60, 0, 0, 0)


def test_a_key_is_with_the_same_task_on_spark_and_in_one_process(bench: Bench) -> None:
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([("a", 1), ("b", 2.0), ("a", 1.0), ("c", None)], fields=("name", "number")))
    builder.bolt("note", Note(bench.notebook), parallelism=5).fields("source", "name", "number")
    bench.run(builder.build())
    on_spark = sorted(map(str, bench.notebook.read()))
    run_locally(builder.build(), bench.acker)

    assert sorted(map(str, bench.notebook.read())) == sorted(on_spark * 2)


@pytest.mark.parametrize("partitions", [1, 2, 7, 30])
def test_spark_brings_each_task_to_a_partition_of_its_own(spark: SparkSession, partitions: int) -> None:
    parts = list(range(partitions)) * 2
    frame = by_part(spark.createDataFrame(pa.table({"part": pa.array(parts, pa.int32())})), partitions)
    rows = frame.select("part", F.spark_partition_id().alias("place")).toArrow().to_pylist()

    assert sorted((row["part"], row["place"]) for row in rows) == sorted((part, part) for part in parts)
