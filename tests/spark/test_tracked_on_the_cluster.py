"""Tracked frames on a real cluster: whatever Spark runs again, every message has the one final event it should have.

The control is test_naive_acks_go_wrong: under the same scenarios acks without tokens are wrong.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from redis_acker import Acker
from tests.backends import Servers
from tests.spark.cluster import HOSTS, Driver, StandaloneCluster
from tests.spark.jobs.faults import FIRST_DONE, SECOND_BEGUN, Faults
from tests.spark.jobs.tracked import FIRST_BEGUN, SINK_BEGUN, fails_in_first, fails_in_second
from tests.spark.scenarios import EXECUTOR_LOSS, ROOTS, SCENARIOS, SPOUT, TASK_RETRY, Scenario, play
from tests.waiting import wait_until

pytestmark = pytest.mark.full

JOB = "tests.spark.jobs.tracked"

FAILING = sorted(
    [[number, "first"] for number in range(ROOTS) if fails_in_first(number)]
    + [[number, "second"] for number in range(ROOTS) if fails_in_second(number)]
)


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    with Acker(servers.get("redis-7.0").url, namespace=namespace, timeout_ms=600_000) as acker:
        yield acker


def kill_at(point: str, executors: int) -> Scenario:
    """SIGKILL of executors, with their files, in the middle of the stage that begins with the point."""

    def meanwhile(driver: Driver, faults: Faults) -> None:
        wait_until(lambda: len(faults.arrivals(point)) > len(HOSTS) - executors, 60)
        for executor in driver.executors()[-executors:]:
            executor.kill(lose_files=True)
        faults.release(point)

    name = f"{executors} of {len(HOSTS)} executors killed: {point}"
    return Scenario(name, {point: "hold"}, meanwhile=meanwhile, repeated=(point,))


#: The second stage is that of a scenario that the control plays too. The sink's may be one task, on either executor.
KILLS = (kill_at(FIRST_BEGUN, 1), kill_at(SINK_BEGUN, 2))


def check(acker: Acker, result: dict[str, list[object]], sinks: int) -> None:
    """Every message of every run is complete, but for those that were told to fail, each in its step."""
    assert result["failed"] == [FAILING] * sinks
    assert result["completed"] == [ROOTS - len(FAILING)] * sinks
    [books] = [one for one in acker.stats().spouts if one.name == SPOUT]
    assert (books.initialised, books.completed, books.failed, books.timeout, books.pending) == (
        sinks * ROOTS,
        sinks * (ROOTS - len(FAILING)),
        sinks * len(FAILING),
        0,
        0,
    )


@pytest.mark.parametrize("scenario", [*SCENARIOS, *KILLS], ids=str)
def test_no_message_is_wrong(
    spark_cluster: StandaloneCluster, acker: Acker, tmp_path: Path, scenario: Scenario
) -> None:
    check(acker, play(spark_cluster, scenario, JOB, acker=acker, directory=tmp_path), scenario.sinks)


def test_no_message_is_wrong_without_adaptive_execution(
    spark_cluster: StandaloneCluster, acker: Acker, tmp_path: Path
) -> None:
    result = play(spark_cluster, EXECUTOR_LOSS, JOB, acker=acker, directory=tmp_path, aqe=False)

    check(acker, result, 1)


def test_a_driver_that_is_killed_is_followed_by_one_that_ends_the_job(
    spark_cluster: StandaloneCluster, acker: Acker, tmp_path: Path
) -> None:
    """The roots of the first are failed by the second, which brings all messages again."""
    faults = Faults(str(tmp_path), {})
    held = replace(TASK_RETRY, plan={SECOND_BEGUN: "hold"})
    driver = spark_cluster.shared_driver()
    driver.wait_for_executors()
    settings = {
        "url": ",".join(acker.urls),
        "namespace": acker.namespace,
        "spout": SPOUT,
        "roots": ROOTS,
        "looks": 0,
        "sinks": 1,
        "directory": str(tmp_path),
        "plan": held.plan,
    }
    driver.start(JOB, settings)
    wait_until(lambda: faults.arrivals(SECOND_BEGUN), 60)
    driver.kill()
    assert acker.pending_count(SPOUT) == ROOTS  # rows that have failed are noted, and fail when the job ends

    again = spark_cluster.shared_driver()
    again.wait_for_executors()
    result = again.run(JOB, {**settings, "plan": {}})

    assert result["failed"] == [FAILING]
    [books] = [one for one in acker.stats().spouts if one.name == SPOUT]
    assert (books.initialised, books.completed, books.pending) == (2 * ROOTS, ROOTS - len(FAILING), 0)
    assert faults.arrivals(FIRST_DONE)
