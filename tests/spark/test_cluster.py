"""The cluster of the tests is a real one: two hosts, processes that can be killed, and nothing left behind."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.cluster import HOSTS, Driver, StandaloneCluster
from tests.spark.jobs.faults import FIRST_DONE, SECOND_BEGUN, Fault, Faults
from tests.spark.processes import ROOT, marked
from tests.spark.protocol import DriverEnded, JobFailed
from tests.waiting import wait_until

JOB = "tests.spark.jobs.where"
ROWS = 1_000


def job_settings(directory: Path, plan: dict[str, Fault]) -> dict[str, Any]:
    return {"directory": str(directory), "plan": plan, "rows": ROWS}


@pytest.fixture
def driver(spark_cluster: StandaloneCluster) -> Driver:
    return spark_cluster.shared_driver()


def test_a_local_session_runs_tasks_in_two_cores(spark: SparkSession) -> None:
    assert spark.range(0, ROWS, 1, 4).rdd.getNumPartitions() == 4
    assert spark.sparkContext.master == "local[2,2]"


@pytest.mark.full
def test_a_job_runs_on_both_workers(driver: Driver, tmp_path: Path) -> None:
    faults = Faults(str(tmp_path), {SECOND_BEGUN: "hold"})
    driver.start(JOB, job_settings(tmp_path, {SECOND_BEGUN: "hold"}))
    wait_until(lambda: len(faults.arrivals(SECOND_BEGUN)) == len(HOSTS), 60)
    faults.release(SECOND_BEGUN)

    result = driver.result()

    assert result == {"ids": list(range(ROWS)), "hosts": list(HOSTS)}
    assert [executor.host for executor in driver.executors()] == list(HOSTS)
    assert faults.repeats(FIRST_DONE) == 0


@pytest.mark.full
def test_the_stage_of_a_killed_executor_runs_again_and_the_job_ends(driver: Driver, tmp_path: Path) -> None:
    faults = Faults(str(tmp_path), {SECOND_BEGUN: "hold"})
    driver.start(JOB, job_settings(tmp_path, {SECOND_BEGUN: "hold"}))
    wait_until(lambda: len(faults.arrivals(SECOND_BEGUN)) == len(HOSTS), 60)
    before = driver.executors()
    before[1].kill()
    faults.release(SECOND_BEGUN)

    assert driver.result()["ids"] == list(range(ROWS))
    assert faults.repeats(FIRST_DONE) > 0
    after = driver.wait_for_executors()
    assert before[0] in after
    assert before[1] not in after


@pytest.mark.full
def test_a_task_that_fails_is_tried_again(driver: Driver, tmp_path: Path) -> None:
    result = driver.run(JOB, job_settings(tmp_path, {FIRST_DONE: "fail"}), aqe=False)

    assert result["ids"] == list(range(ROWS))
    assert Faults(str(tmp_path), {}).repeats(FIRST_DONE) == 1


@pytest.mark.full
def test_what_a_job_raises_is_told(driver: Driver) -> None:
    with pytest.raises(JobFailed, match="KeyError: 'directory'"):
        driver.run(JOB, {})


@pytest.mark.full
def test_a_slow_task_has_a_copy_on_the_other_host(spark_cluster: StandaloneCluster, tmp_path: Path) -> None:
    driver = spark_cluster.shared_driver(speculation=True)

    result = driver.run(JOB, job_settings(tmp_path, {FIRST_DONE: "copy"}))

    assert result["ids"] == list(range(ROWS))
    assert Faults(str(tmp_path), {}).repeats(FIRST_DONE) > 0


@pytest.mark.full
def test_a_killed_driver_takes_its_executors_along(spark_cluster: StandaloneCluster, tmp_path: Path) -> None:
    driver = spark_cluster.shared_driver()
    driver.start(JOB, job_settings(tmp_path, {SECOND_BEGUN: "hold"}))
    wait_until(lambda: Faults(str(tmp_path), {}).arrivals(SECOND_BEGUN), 60)
    driver.kill()

    with pytest.raises(DriverEnded, match="exit code -9"):
        driver.result()
    wait_until(lambda: not driver.executors(), 60)
    assert not driver.is_idle


@pytest.mark.full
def test_nothing_is_left_of_a_cluster_whose_test_run_was_killed() -> None:
    code = (
        "from tests.spark.cluster import StandaloneCluster\n"
        "cluster = StandaloneCluster()\n"
        "driver = cluster.driver()\n"
        "driver.wait_for_executors()\n"
        "print(cluster.mark, cluster.directory, flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        mark, directory = run.stdout.readline().split()
        started = list(marked(mark))
        run.send_signal(signal.SIGKILL)

    # Master, two workers, a driver and its JVM, two executors.
    assert len(started) >= 7
    wait_until(lambda: not list(marked(mark)) and not Path(directory).exists(), 60)
