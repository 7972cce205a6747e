"""Makes the format known to a session."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyspark
from pyspark.sql import SparkSession

from redis_acker.errors import BadInput
from spark_integration.sources.address import ServerAddress
from spark_integration.workers import check_python

FORMAT = "redis_acker"

NEEDED = (4, 2)
"""The PySpark whose Python sources have admission control."""

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, url: str | Sequence[str] | None = None) -> None:
    """Makes `format("redis_acker")` known to a session.

    url: of the servers that are meant where no option `url` names others. It may hold a password, which Spark does not
    show. Without: REDIS_ACKER_URL.
    """
    register_as(spark, FORMAT, None if url is None else ServerAddress.of(url))


def register_as(spark: SparkSession, name: str, address: ServerAddress | None) -> None:
    found = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if found < NEEDED:
        raise BadInput(
            f'format("{FORMAT}") needs PySpark {".".join(map(str, NEEDED))} or newer, whose Python sources can say '
            f"how much they read at a time; this is {pyspark.__version__}."
        )
    check_python(spark)
    from spark_integration.sources.format import bound_format

    pushes = spark.conf.get(_PUSHDOWN, "false") == "true"
    spark.dataSource.register(bound_format(name, address, pushes_filters=pushes))
