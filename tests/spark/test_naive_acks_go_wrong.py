"""The control: acks without tokens, on a real cluster, are wrong as soon as Spark runs a task twice.

The tests of the tracked frames play the same scenarios and find no root wrong. That says something because here they
find some.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redis_acker import Acker
from tests.backends import Servers
from tests.spark.cluster import StandaloneCluster
from tests.spark.scenarios import HARMFUL, HARMLESS, ROOTS, Scenario, balance, play

pytestmark = pytest.mark.full

JOB = "tests.spark.jobs.naive"


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    with Acker(servers.get("redis-7.0").url, namespace=namespace, timeout_ms=600_000) as acker:
        yield acker


@pytest.mark.parametrize("scenario", HARMLESS, ids=str)
def test_if_no_pending_root_is_acked_twice_they_are_right(
    spark_cluster: StandaloneCluster, acker: Acker, tmp_path: Path, scenario: Scenario
) -> None:
    books = balance(acker, play(spark_cluster, scenario, JOB, acker=acker, directory=tmp_path))

    assert (books.wrong, books.completed, books.pending) == (0, ROOTS, 0)


@pytest.mark.parametrize("scenario", HARMFUL, ids=str)
def test_if_a_task_runs_twice_they_are_wrong(
    spark_cluster: StandaloneCluster, acker: Acker, tmp_path: Path, scenario: Scenario
) -> None:
    books = balance(acker, play(spark_cluster, scenario, JOB, acker=acker, directory=tmp_path))

    print(f"{scenario}: {books.wrong} of {ROOTS} roots wrong, {books.pending} stuck")
    assert books.wrong > 0
    assert books.completed + books.pending == ROOTS
