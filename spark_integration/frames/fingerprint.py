"""What Spark's plan says about a job's input: whether it is the same as before, and split into the same partitions."""

from __future__ import annotations

import hashlib
import re
import threading
from typing import Any

from pyspark.sql import DataFrame, SparkSession

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

_KNOWN_LEAVES = {"Range", "OneRowRelation"}
"""Beside files."""

_MOST_FIELDS = "spark.sql.debug.maxToStringFields"
"""Of a plan or an expression, that its text has; Spark leaves out the others."""

_COUNTED = {"Parquet", "ORC"}

_FILE = re.compile(r"path=(.*?);.*?length=(\d+);.*?modification_time=(\d+);")

_PATH = re.compile("paths? -> ", re.IGNORECASE)

_one_at_a_time = threading.Lock()
"""Whoever has it may change how Spark writes plans."""


def input_fingerprint(frame: DataFrame) -> InputFingerprint:
    """The fingerprint of a frame that workers get."""
    spark = frame.sparkSession
    if is_connect(spark):
        return InputFingerprint("", "over Spark Connect there is no way to know whether the input is the same", 0)
    if not keeps_order(frame):
        return InputFingerprint("", "after a shuffle its rows are in different partitions every time", 0)
    plan = frame._jdf.queryExecution().analyzed()
    plans = [plan, *_items(plan.subqueriesAll())]
    leaves = [leaf for one in plans for leaf in _items(one.collectLeaves())]
    if not all(map(_is_known, leaves)):
        return InputFingerprint("", "its input is not files, so there is no way to know whether it is the same", 0)
    partitions = int(frame._jdf.queryExecution().toRdd().getNumPartitions())
    content = [frame.schema.json(), *_texts(plans, spark), *map(_source, leaves)]
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
    if not _is_files(plan):
        return None
    return frame.count() if plan.relation().fileFormat().toString() in _COUNTED else None


def _below_projections(frame: DataFrame) -> Any:
    plan = frame._jdf.queryExecution().analyzed()
    while _name(plan) == "Project":
        plan = plan.child()
    return plan


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _texts(plans: list[Any], spark: SparkSession) -> list[str]:
    """Of plans, in full. Names of columns are not in them, and files are only by their format."""
    with _one_at_a_time:
        before = spark.conf.get(_MOST_FIELDS)
        spark.conf.set(_MOST_FIELDS, 2**31 - 1)
        try:
            return [str(plan.canonicalized().toString()) for plan in plans]
        finally:
            spark.conf.set(_MOST_FIELDS, str(before))


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _is_files(leaf: Any) -> bool:
    return _name(leaf) == "LogicalRelation" and bool(_name(leaf.relation()) == FILES)


def _is_known(leaf: Any) -> bool:
    return _name(leaf) in _KNOWN_LEAVES or _is_files(leaf)


def _source(leaf: Any) -> str:
    """What a leaf of a plan reads. Of files: the path, length and modification time of each, and how they are read;
    however the path was written by which they were found."""
    if not _is_files(leaf):
        return str(leaf.canonicalized().toString())
    relation = leaf.relation()
    files = sorted(map(str, _FILE.findall(relation.location().allFiles().mkString("\n"))))
    options = sorted(one for one in str(relation.options().mkString("\n")).splitlines() if not _PATH.match(one))
    return "\n".join([leaf.schema().json(), *options, *files])
