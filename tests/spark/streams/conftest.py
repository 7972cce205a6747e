"""A store, and files that a stream reads."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from redis_acker import Acker, RetryPolicy
from spark_integration import TrackedStream, track_stream
from tests.backends import Servers
from tests.spark.streams.feed import SCHEMA, SPOUT, Feed

#: Failed messages are tried again at once.
AT_ONCE = RetryPolicy(max_attempts=3, first_ms=0)

MakeStream = Callable[..., TrackedStream]


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    # Longer than rows may be on their way between two queries on a busy machine.
    with Acker(servers.get("redis-7.0").url, namespace=namespace, timeout_ms=300_000) as acker:
        yield acker


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)


@pytest.fixture
def stream(spark: SparkSession, acker: Acker, feed: Feed) -> MakeStream:
    """stream() is a tracked stream over the files of the feed; options are those of track_stream()."""

    def make(spout: str = SPOUT, **options: Any) -> TrackedStream:
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(feed.input))
        defaults = {"retries": AT_ONCE, "message_id": "id"}
        return track_stream(frame, acker=acker, spout=spout, **{**defaults, **options})

    return make
