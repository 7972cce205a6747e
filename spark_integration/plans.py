"""What Spark knows of a plan: whether it gives the same rows when it is run again."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

_SAME_ROWS_AGAIN = {"LocalRelation", "LogicalRDD", "OneRowRelation", "Range", "ExternalRDD"}
"""Leaves that are computed from what the driver holds, or that Spark itself computes again when a part is lost."""

_FILES = "HadoopFsRelation"
"""Files that were listed when the frame was made: files that are added later are not seen."""


def is_connect(frame: DataFrame) -> bool:
    """Whether the frame lives in a Spark Connect server."""
    return not hasattr(frame, "_jdf")


def is_deterministic(frame: DataFrame) -> bool:
    """Whether no expression of the plan is known to give other values when it is computed again. A Spark Connect
    client does not see plans, and takes what it is told."""
    if is_connect(frame):
        return True
    return bool(frame._jdf.queryExecution().analyzed().deterministic())


def is_repeatable(frame: DataFrame) -> bool:
    """Whether the frame is known to give the same rows when it is read again."""
    if is_connect(frame):
        return False
    plan = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    return bool(plan.deterministic()) and all(_is_stable(leaves.apply(i)) for i in range(leaves.size()))


def _is_stable(leaf: Any) -> bool:
    name = leaf.getClass().getSimpleName()
    if name == "LogicalRelation":
        relation: str = leaf.relation().getClass().getSimpleName()
        return relation == _FILES
    return name in _SAME_ROWS_AGAIN
