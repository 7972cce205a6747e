"""What the three applications share: the store, and how rows travel through Redis Streams."""

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import redis

from redis_acker import Acker, RetryPolicy

SPOUT = "orders"
RETRIES = RetryPolicy(max_attempts=5, first_ms=100, longest_ms=1000)
AT_ONCE = 5000
"""Orders that may be pending, and entries of a stream that one job takes."""

OVER = "over"
"""A key that the first application sets when everything is done."""


def arguments() -> tuple[Acker, "redis.Redis", str, Path]:
    """The acker, a client for the streams, the URL of the server, and the directory of the logs."""
    url, logs = sys.argv[1], Path(sys.argv[2])
    # Longer than rows can be on their way, also if an application has to be started again meanwhile.
    return Acker(url, namespace="three-apps", timeout_ms=300_000), redis.Redis.from_url(url), url, logs


def spark_session(name: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{sys.argv[3]}]").appName(name)
    return builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").getOrCreate()


def writer(url: str, stream: str, log: Path) -> Callable[[pa.RecordBatch], None]:
    """A sink that adds rows to a stream, anchors and all, and notes them in a log of its own."""

    def write(batch: pa.RecordBatch) -> None:
        rows = batch.to_pylist()
        with redis.Redis.from_url(url) as client, client.pipeline(transaction=False) as pipeline:
            for row in rows:
                pipeline.xadd(stream, row)
            pipeline.execute()
        note(log, (f"{row['order']} {row['item']}" for row in rows))

    return write


def note(log: Path, lines: Any) -> None:
    with log.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def flaky() -> None:
    """Fails by chance: one call in two hundred, or in as many as FLAKY says."""
    if random.randrange(int(os.environ.get("FLAKY", "200"))) == 0:
        raise ConnectionError("a service did not answer")
