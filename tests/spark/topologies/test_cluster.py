"""On a real cluster: an executor is killed with its files, tasks are copied, the driver is killed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends import Backend, Servers, make_backend
from tests.spark.cluster import Driver, StandaloneCluster
from tests.spark.jobs.faults import FIRST_DONE, SECOND_BEGUN, Fault, Faults
from tests.spark.processes import command_line
from tests.spark.topologies.cluster_job import ACKED, WORDS
from tests.waiting import wait_until

pytestmark = pytest.mark.full

JOB = "tests.spark.topologies.cluster_job"
MESSAGES = 5_000


@pytest.fixture
def store(servers: Servers, namespace: str) -> Iterator[Backend]:
    backend = make_backend("redis-7.0", servers)
    yield backend
    backend.delete_keys(namespace)


def settings(store: Backend, namespace: str, directory: Path, plan: dict[str, Fault], **more: bool) -> dict[str, Any]:
    return {
        "url": store.target,
        "namespace": namespace,
        "directory": str(directory),
        "plan": plan,
        "messages": MESSAGES,
        "random_edges": False,
        "is_random": False,
        "checksum": True,
        **more,
    }


def counted(directory: Path) -> set[int]:
    """The messages of which both words of one run were counted, by the log of the bolts."""
    words = defaultdict(set)
    for path in directory.glob("*.counted"):
        for word, number, run in json.loads(path.read_text()):
            words[number, run].add(word)
    return {number for (number, _), found in words.items() if found == set(WORDS)}


def kill_the_second_reader(
    driver: Driver, directory: Path, job: dict[str, Any], *, aqe: bool, is_orphan: bool = False
) -> dict[str, Any]:
    """Kills the executor of the task that is held, whose input is then lost in part. Returns what the job says.

    is_orphan: the Python worker goes on after the death of its executor, for as long as the system lets it.
    """
    faults = Faults(str(directory), {})
    driver.wait_for_executors()
    driver.start(JOB, job, aqe=aqe)
    wait_until(lambda: faults.arrivals(SECOND_BEGUN), 90)
    [held] = directory.glob("held on *")
    [executor] = [one for one in driver.executors() if one.host == held.name.rpartition(" ")[2]]
    executor.kill()
    wait_until(lambda: is_orphan or not command_line(int(held.read_text())))
    faults.release(SECOND_BEGUN)
    result: dict[str, Any] = driver.result()
    assert faults.repeats(FIRST_DONE) > 0
    return result


@pytest.mark.parametrize("is_orphan", [False, True])
@pytest.mark.parametrize(("aqe", "checksum"), [(True, False), (False, True)])
def test_a_stage_that_is_run_again_after_an_executor_was_killed_is_counted_once(
    spark_cluster: StandaloneCluster,
    store: Backend,
    namespace: str,
    tmp_path: Path,
    aqe: bool,
    checksum: bool,
    is_orphan: bool,
) -> None:
    job = settings(store, namespace, tmp_path, {SECOND_BEGUN: "hold"}, checksum=checksum)
    driver = spark_cluster.shared_driver()
    result = kill_the_second_reader(driver, tmp_path, job, aqe=aqe, is_orphan=is_orphan)

    assert result["duplicates"] > 0 or is_orphan
    assert (result["books"], result["executed"]) == ([MESSAGES, 0, 0, 0], 2 * MESSAGES)
    assert counted(tmp_path) == set(range(MESSAGES))


def test_other_values_in_the_second_run_of_a_stage_complete_nothing_that_is_not_done(
    spark_cluster: StandaloneCluster, store: Backend, namespace: str, tmp_path: Path
) -> None:
    """What the first run acked and lost times out, and is replayed."""
    job = settings(store, namespace, tmp_path, {SECOND_BEGUN: "hold"}, is_random=True, checksum=False)
    result = kill_the_second_reader(spark_cluster.shared_driver(), tmp_path, job, aqe=True)

    completed, failed, timed_out, pending = result["books"]
    assert (completed, failed, pending) == (MESSAGES, 0, 0)
    assert 0 < timed_out <= MESSAGES
    assert counted(tmp_path) == set(range(MESSAGES))


@pytest.mark.parametrize("is_random", [False, True])
@pytest.mark.parametrize("point", [FIRST_DONE, ACKED])
def test_a_task_that_dies_before_or_after_its_acks(
    spark_cluster: StandaloneCluster, store: Backend, namespace: str, tmp_path: Path, point: str, is_random: bool
) -> None:
    """The bolt fails in cleanup() before the acks, which fails its tuples; after them its worker is killed."""
    job = settings(store, namespace, tmp_path, {point: "fail"}, is_random=is_random)
    result = spark_cluster.shared_driver().run(JOB, job)

    completed, failed, timed_out, pending = result["books"]
    assert (completed, pending) == (MESSAGES, 0)
    assert (failed > 0) == (point == FIRST_DONE)
    assert (timed_out > 0) == (point == ACKED and is_random)
    assert counted(tmp_path) == set(range(MESSAGES))


def test_control_random_edges_leave_messages_pending_after_an_executor_was_killed(
    spark_cluster: StandaloneCluster, store: Backend, namespace: str, tmp_path: Path
) -> None:
    job = settings(store, namespace, tmp_path, {SECOND_BEGUN: "hold"}, random_edges=True, checksum=False)
    result = kill_the_second_reader(spark_cluster.shared_driver(), tmp_path, job, aqe=True)

    assert result["books"][0] < MESSAGES


@pytest.mark.parametrize("point", [FIRST_DONE, ACKED])
def test_a_speculative_copy_of_a_task_is_not_counted(
    spark_cluster: StandaloneCluster, store: Backend, namespace: str, tmp_path: Path, point: str
) -> None:
    job = settings(store, namespace, tmp_path, {point: "copy"})
    result = spark_cluster.shared_driver(speculation=True).run(JOB, job)

    assert Faults(str(tmp_path), {}).repeats(point) > 0
    assert (result["books"], result["executed"]) == ([MESSAGES, 0, 0, 0], 2 * MESSAGES)
    assert counted(tmp_path) == set(range(MESSAGES))


def test_the_messages_of_a_driver_that_was_killed_are_not_lost(
    spark_cluster: StandaloneCluster, store: Backend, namespace: str, tmp_path: Path
) -> None:
    first = spark_cluster.driver()
    first.start(JOB, settings(store, namespace, tmp_path, {SECOND_BEGUN: "hold"}))
    wait_until(lambda: Faults(str(tmp_path), {}).arrivals(SECOND_BEGUN), 90)
    first.kill()
    result = spark_cluster.shared_driver().run(JOB, settings(store, namespace, tmp_path, {}))

    completed, failed, timed_out, pending = result["books"]
    assert (completed, failed, pending) == (MESSAGES, 0, 0)
    assert 0 < timed_out <= MESSAGES
