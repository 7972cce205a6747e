"""What Spark runs on the partitions of a level."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa

from spark_integration.topologies.plan import Plan
from spark_integration.topologies.task import Task
from spark_integration.topologies.wire import RESULT, Row, from_arrow, to_arrow, unpack_deliveries

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def level_step(plan: Plan, level: int, batch: int) -> Step:
    """A function for mapInArrow. It takes the rows for tasks of this level, and lets the others pass."""
    tasks = frozenset(plan.tasks_at(level))

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shares: dict[int, list[bytes]] = {}
        for rows in map(from_arrow, batches):
            passing = [plan.address(row.task, row.data, level + 1) for row in rows if row.task not in tasks]
            if passing:
                yield to_arrow(passing)
            for row in rows:
                if row.task in tasks:
                    shares.setdefault(row.task, []).append(row.data)
        for task, chunks in sorted(shares.items()):
            for found in Task(plan, task, level=level, batch=batch).run(unpack_deliveries(chunks)):
                if found:
                    yield to_arrow(found)

    step.__name__ = "_and_".join(plan.levels[level])  # what Spark's own pages show
    return step


def load_step(plan: Plan) -> Step:
    """A function for mapInArrow that says which bolts cannot be loaded here, and why."""

    def load_bolts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for name, pickled in plan.bolts.items():
                try:
                    pickle.loads(pickled)
                except Exception as error:
                    yield to_arrow([Row(0, RESULT, f"{name!r}: {type(error).__name__}: {error}".encode())])

    return load_bolts
