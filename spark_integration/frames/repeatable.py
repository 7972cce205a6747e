"""Whether a frame has the same rows when it is computed again, as far as Spark's plan tells, and what to do if not."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame

from spark_integration.errors import wrong_python_in
from spark_integration.runs.failing import Tracking
from spark_integration.workers import check_python, is_connect

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
"""Parts of a plan that have the same rows for the same input, however Spark runs them. A limit, a sample, first() of a
group, or a user's function over whole partitions may not."""

_IN_ORDER = _SAME_ROWS_AGAIN - {"Distinct", "Join", "Repartition", "RepartitionByExpression", "Sort"}
"""Those that also keep rows in their partitions and in their order."""

_STREAMS = frozenset({"StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation"})
"""Sources of streaming frames."""

FILES = "HadoopFsRelation"
"""Files, which were listed when the frame was made: files that are added later are not seen."""


def is_deterministic(frame: DataFrame) -> bool:
    """Whether no expression of the plan is known to change its value when it is computed again. A Spark Connect client
    does not see plans, so there the answer is yes."""
    if is_connect(frame.sparkSession):
        return True
    return bool(frame._jdf.queryExecution().analyzed().deterministic())


def is_repeatable(frame: DataFrame) -> bool:
    """Whether the frame is known to have the same rows when it is read again."""
    if is_connect(frame.sparkSession):
        return False
    plan = frame._jdf.queryExecution().analyzed()
    return bool(plan.deterministic()) and _repeats(plan)


def is_repeatable_stream(frame: DataFrame) -> bool:
    """Whether a micro-batch of a streaming frame is known to have the same rows when it is read again. Sources have to
    give them again, or Spark could not recover."""
    plan = frame._jdf.queryExecution().analyzed()
    return bool(plan.deterministic()) and _repeats(plan, leaves=_STREAMS)


def keeps_order(frame: DataFrame) -> bool:
    """Whether each partition of the frame has its rows in the same order when it is computed again. Behind a shuffle
    they come as they are fetched."""
    if is_connect(frame.sparkSession):
        return False
    return _is_in_order(frame._jdf.queryExecution().analyzed())


def _is_in_order(plan: Any) -> bool:
    children = plan.children()
    is_leaf = not children.size()
    return (is_leaf or plan.getClass().getSimpleName() in _IN_ORDER) and all(
        _is_in_order(children.apply(i)) for i in range(children.size())
    )


def stored(frame: DataFrame) -> DataFrame:
    """The rows as they are now, kept by the executors. If an executor dies with them, the job fails."""
    if is_connect(frame.sparkSession):
        # Otherwise the client ends before the frame does, and the frame waits for it forever.
        atexit.register(frame.sparkSession.client.close)
    check_python(frame.sparkSession)  # a frame made of Python objects is computed by workers
    try:
        return frame.localCheckpoint(eager=True)
    except Exception as error:
        if wrong := wrong_python_in(error):
            raise wrong from error
        raise


def stored_if_unstable(
    build: Callable[[Sequence[DataFrame], Tracking | None], DataFrame],
) -> Callable[[Sequence[DataFrame], Tracking | None], DataFrame]:
    """Stores what a step makes if Spark knows that it may come out differently when a part of it runs again."""

    def checked(frames: Sequence[DataFrame], tracking: Tracking | None) -> DataFrame:
        made = build(frames, tracking)
        if tracking is None or is_deterministic(made) or not all(map(is_deterministic, frames)):
            return made
        return stored(made)

    return checked


def _repeats(node: Any, *, leaves: frozenset[str] = frozenset()) -> bool:
    name = node.getClass().getSimpleName()
    if name in leaves:
        return True
    if name == "LogicalRelation":
        relation: str = node.relation().getClass().getSimpleName()
        return relation == FILES
    if name == "LogicalRDD":  # what stored() makes, or anything that a user computes
        return bool(node.rdd().isCheckpointed())
    children = node.children()
    return name in _SAME_ROWS_AGAIN and all(_repeats(children.apply(i), leaves=leaves) for i in range(children.size()))
