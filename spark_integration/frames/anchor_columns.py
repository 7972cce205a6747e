"""The tracking column where rows of several messages meet."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from spark_integration.runs.tracking import COLUMN

_LEFT, _RIGHT = f"{COLUMN}_left", f"{COLUMN}_right"


def has_many(frame: DataFrame) -> bool:
    """Whether rows of the frame may come from several messages."""
    return isinstance(frame.schema[COLUMN].dataType, ArrayType)


def join(left: DataFrame, right: DataFrame, on: str | list[str] | Column, how: str) -> DataFrame:
    """A join whose rows come from the messages of both sides."""
    if COLUMN not in right.columns:
        joined = left.join(right, on, how)
        # Rows of the right side alone come from no message.
        return joined.withColumn(COLUMN, _as_array(left, COLUMN)) if _keeps_right(how) else joined
    renamed = left.withColumnRenamed(COLUMN, _LEFT), right.withColumnRenamed(COLUMN, _RIGHT)
    joined = renamed[0].join(renamed[1], on, how)
    if _RIGHT not in joined.columns:  # a semi or anti join
        return joined.withColumnRenamed(_LEFT, COLUMN)
    keys = F.array_union(_as_array(left, _LEFT), _as_array(right, _RIGHT))
    return joined.withColumn(COLUMN, keys).drop(_LEFT, _RIGHT)


def _keeps_right(how: str) -> bool:
    return how.lower().replace("_", "") in ("right", "rightouter", "full", "fullouter", "outer")


def union(left: DataFrame, right: DataFrame) -> DataFrame:
    """All rows of both, columns matched by name."""
    if has_many(left) != has_many(right):
        left = left.withColumn(COLUMN, _as_array(left, COLUMN))
        right = right.withColumn(COLUMN, _as_array(right, COLUMN))
    return left.unionByName(right)


def _as_array(frame: DataFrame, column: str) -> Column:
    """The keys of a row; none where an outer join found no row on this side."""
    none = F.array().cast("array<bigint>")
    if has_many(frame):
        return F.coalesce(F.col(column), none)
    return F.when(F.col(column).isNull(), none).otherwise(F.array(F.col(column)))
