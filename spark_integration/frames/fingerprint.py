"""What Spark's plan says about a job's input: whether it is the same as before, and split into the same partitions."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from pyspark.sql import DataFrame

from spark_integration.frames.repeatable import FILES, keeps_order
from spark_integration.runs.booked import InputFingerprint
from spark_integration.workers import is_connect

_SPLITTING = (
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.maxPartitionNum",
    "spark.sql.leafNodeDefaultParallelism",
)
"""Settings that decide how Spark splits files into partitions."""

_KNOWN_LEAVES = {"LogicalRelation", "Range", "OneRowRelation"}

_COUNTED = {"Parquet", "ORC"}

_FILE = re.compile(r"path=(.*?);.*?length=(\d+);.*?modification_time=(\d+);")


def input_fingerprint(frame: DataFrame) -> InputFingerprint:
    """The fingerprint of a frame that workers get."""
    spark = frame.sparkSession
    if is_connect(spark):
        return InputFingerprint("", "over Spark Connect there is no way to know whether the input is the same", 0)
    if not keeps_order(frame):
        return InputFingerprint("", "after a shuffle its rows are in different partitions every time", 0)
    plan = frame._jdf.queryExecution().analyzed()
    leaves = _leaves(plan)
    if not {_name(leaf) for leaf in leaves} <= _KNOWN_LEAVES:
        return InputFingerprint("", "its input is not files, so there is no way to know whether it is the same", 0)
    partitions = int(frame._jdf.queryExecution().toRdd().getNumPartitions())
    content = [
        plan.canonicalized().toString(),
        *(_files(leaf) if _name(leaf) == "LogicalRelation" else leaf.canonicalized().toString() for leaf in leaves),
    ]
    layout = [
        *(f"{name}={spark.conf.get(name, None)}" for name in _SPLITTING),
        str(spark.sparkContext.defaultParallelism),
        str(partitions),
    ]
    return InputFingerprint(_hash([*content, *layout]), "", partitions, _hash(content))


def _hash(told: list[str]) -> str:
    return hashlib.blake2b("\n".join(told).encode(), digest_size=16).hexdigest()


def is_only_projected(frame: DataFrame, other: DataFrame) -> bool:
    """Whether a frame has the rows of another, with other columns, and no more."""
    return bool(_below_projections(frame).equals(_below_projections(other)))


def known_count(frame: DataFrame) -> int | None:
    """How many rows a frame has, if that is cheap to know: Parquet and ORC files say it in their footers."""
    if is_connect(frame.sparkSession):
        return None
    plan = _below_projections(frame)
    if _name(plan) == "Range":
        return int(str(plan.numElements()))
    if _name(plan) != "LogicalRelation" or plan.relation().getClass().getSimpleName() != FILES:
        return None
    return frame.count() if plan.relation().fileFormat().toString() in _COUNTED else None


def _below_projections(frame: DataFrame) -> Any:
    plan = frame._jdf.queryExecution().analyzed()
    while _name(plan) == "Project":
        plan = plan.child()
    return plan


def _leaves(plan: Any) -> list[Any]:
    leaves = plan.collectLeaves()
    return [leaves.apply(i) for i in range(leaves.size())]


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _files(leaf: Any) -> str:
    """Path, length and modification time of each file."""
    relation = leaf.relation()
    if relation.getClass().getSimpleName() != FILES:
        return ""
    return "\n".join(sorted(map(str, _FILE.findall(relation.location().allFiles().mkString("\n")))))
