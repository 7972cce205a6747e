"""Streams to read and to write, and queries over them."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
import redis
from pyspark.sql import SparkSession

from spark_integration import register
from spark_integration.sources.register import NEEDED
from tests.spark.sources.queries import Queries


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An older PySpark is refused, which a test without a session looks at."""
    if tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2]) >= NEEDED:
        return
    for item in items:
        if Path(__file__).parent in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason="Python sources of this PySpark have no admission control"))


@pytest.fixture
def stream(client: redis.Redis, namespace: str) -> Iterator[str]:
    """The name of a stream that no other test uses. What is left of it and beside it is removed."""
    yield namespace
    for key in client.scan_iter(match=f"*{namespace}*", count=1000):
        client.delete(key)


@pytest.fixture
def fill(client: redis.Redis, stream: str) -> Callable[..., list[str]]:
    """fill(range(10)) adds entries with these numbers, and returns their ids."""

    def add(numbers: range, name: str = stream) -> list[str]:
        pipeline = client.pipeline(transaction=False)
        for number in numbers:
            pipeline.xadd(name, {"number": number, "text": f"n{number}"})
        return [f"{name}/{one.decode()}" for one in pipeline.execute()]

    return add


@pytest.fixture
def queries(spark: SparkSession, url: str, tmp_path: Path) -> Iterator[Queries]:
    register(spark, url=url)
    found = Queries(spark, tmp_path)
    yield found
    found.stop()
