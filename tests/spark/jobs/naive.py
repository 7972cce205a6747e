"""Acks from inside tasks, without tokens: what anybody would write first, and what goes wrong.

Every row carries its root and its edge. A step hands its rows on and then acks the edges it took in and sent on. Inits
are sent once, by the driver, so that only the acks can be at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from redis_acker import Acker, new_edges
from tests.spark.jobs.faults import FIRST_DONE, SECOND_BEGUN, SECOND_DONE, Faults
from tests.spark.scenarios import Settings

SCHEMA = "root long, edge long"

#: Odd, so that no two edges become one and none becomes zero.
NEXT_EDGE = np.uint64(0x9E3779B97F4A7C15)

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def run(spark: SparkSession, settings: Settings) -> dict[str, Any]:
    faults = Faults(settings["directory"], settings["plan"])
    with Acker(settings["url"], namespace=settings["namespace"]) as acker:
        roots, edges = acker.allocate(settings["spout"], settings["roots"]), new_edges(settings["roots"])
        acker.init(roots, edges)
    rows = pa.table({"root": roots.view(np.int64), "edge": edges.view(np.int64)})
    first, second = _step(settings, faults, last=False), _step(settings, faults, last=True)
    after_first = spark.createDataFrame(rows, SCHEMA).mapInArrow(first, SCHEMA)
    after_second = after_first.repartition(4, "root").mapInArrow(second, SCHEMA)
    for _ in range(settings["looks"]):
        after_first.count()
    for _ in range(settings["sinks"]):
        after_second.write.format("noop").mode("overwrite").save()
    return {"roots": roots.tolist()}


def _step(settings: Settings, faults: Faults, *, last: bool) -> Step:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if last:
            faults.reached(SECOND_BEGUN)
        acks = []
        for batch in batches:
            roots, edges = (batch[name].to_numpy().view(np.uint64) for name in ("root", "edge"))
            sent = edges * NEXT_EDGE
            yield pa.RecordBatch.from_pydict({"root": batch["root"], "edge": pa.array(sent.view(np.int64))})
            acks.append((roots, edges if last else edges ^ sent))
        for roots, ack_vals in acks:
            _acker(settings["url"], settings["namespace"]).ack(roots, ack_vals)
        faults.reached(SECOND_DONE if last else FIRST_DONE)

    return step


@cache
def _acker(url: str, namespace: str) -> Acker:
    """One connection for each worker process."""
    return Acker(url, namespace=namespace, create=False)
