"""What Spark knows of a plan: whether it gives the same rows when it is run again."""

from __future__ import annotations

import atexit
from typing import Any

from pyspark.sql import DataFrame

_SAME_ROWS_AGAIN = {
    "Distinct",
    "Filter",
    "Generate",
    "Join",
    "LocalRelation",
    "OneRowRelation",
    "Project",
    "Range",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "Sort",
    "SubqueryAlias",
    "Union",
    "View",
}
"""Parts of a plan that give the same rows for the same input, whatever Spark makes of the rest. A limit, a sample,
first() of a group, or a function of the user's over whole partitions do not."""

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
    return bool(plan.deterministic()) and _repeats(plan)


def stored(frame: DataFrame) -> DataFrame:
    """The rows as they are now, kept by the executors. If an executor dies with them, the job fails."""
    if is_connect(frame):
        # Else the client ends before the frame, whose end then waits for it for ever.
        atexit.register(frame.sparkSession.client.close)
    return frame.localCheckpoint(eager=True)


def _repeats(node: Any) -> bool:
    name = node.getClass().getSimpleName()
    if name == "LogicalRelation":
        relation: str = node.relation().getClass().getSimpleName()
        return relation == _FILES
    if name == "LogicalRDD":  # what stored() gives, or anything that a user computes
        return bool(node.rdd().isCheckpointed())
    children = node.children()
    return name in _SAME_ROWS_AGAIN and all(_repeats(children.apply(i)) for i in range(children.size()))
