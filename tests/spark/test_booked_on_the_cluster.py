"""Jobs whose tasks keep the books, on a real cluster: whatever dies, every message has the one final event it should
have, and none completes before the sink has returned for it. The logs of tests.spark.jobs.booked say so."""

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Acker
from tests.backends import Servers
from tests.spark.cluster import HOSTS, Driver, StandaloneCluster
from tests.spark.jobs import booked
from tests.spark.jobs.booked import ACKED, BATCH_ROWS, SINK_BEGUN, SINK_DONE, Settings
from tests.spark.jobs.faults import Fault, Faults
from tests.spark.processes import command_line, descendants, marked
from tests.waiting import wait_until

pytestmark = pytest.mark.full

JOB = "tests.spark.jobs.booked"
SPOUT = "rows"

#: All scenarios together bring more than 500,000 messages.
ROWS, PARTITIONS = 56_000, 4
FAILING = {number for number in range(ROWS) if booked.fails(number)}
CORES = len(HOSTS)


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    with Acker(servers.get("redis-7.0").url, namespace=namespace, timeout_ms=60_000) as acker:
        yield acker


def settings_for(acker: Acker, directory: Path, **changes: Any) -> Settings:
    settings = Settings(
        url=",".join(acker.urls),
        namespace=acker.namespace,
        spout=SPOUT,
        rows=ROWS,
        partitions=PARTITIONS,
        directory=str(directory),
        plan={},
        resume=True,
    )
    settings.update(changes)  # type: ignore[typeddict-item]
    return settings


def reconcile(acker: Acker, directory: Path) -> Counter[int]:
    """Compares what the sink, the workers and the driver have logged. Returns how often each message was sunk."""
    of_root: dict[int, int] = {}
    for roots, numbers in booked.read_log(directory, booked.INITS):
        of_root.update(zip(roots, numbers, strict=True))
    returned: dict[int, float] = {}
    sunk: Counter[int] = Counter()
    for at_s, numbers in booked.read_log(directory, booked.SUNK):
        sunk.update(numbers)
        for number in numbers:
            returned.setdefault(number, at_s)
    over: Counter[int] = Counter()
    completed: Counter[int] = Counter()
    failed: set[int] = set()
    # An entry that was read by a driver which was killed is read again by the next.
    events = {(kind, entry): rest for kind, entry, *rest in booked.read_log(directory, booked.EVENTS)}
    for (kind, _), (at_ms, component, roots) in events.items():
        over.update(roots)
        numbers = [of_root[root] for root in roots]
        if kind == "Completion":
            completed.update(numbers)
            assert [number for number in numbers if returned[number] * 1000 > at_ms + 1] == []
        elif component == "step":
            failed.update(numbers)
    assert over == dict.fromkeys(of_root, 1)
    assert completed == dict.fromkeys(set(range(ROWS)) - FAILING, 1)
    assert failed == FAILING
    assert sunk.keys() == completed.keys()
    [stats] = [one for one in acker.stats().spouts if one.name == SPOUT]
    assert (stats.initialised, stats.completed, stats.timeout, stats.pending) == (len(of_root), len(completed), 0, 0)
    return sunk


@dataclass(frozen=True)
class Scenario:
    """One way in which tasks run more than once."""

    name: str
    plan: dict[str, Fault] = field(default_factory=dict)
    speculation: bool = False
    meanwhile: Callable[[Driver, Faults], None] = lambda driver, faults: None
    repeats: bool = True

    def __str__(self) -> str:
        return self.name


def kill_executor(point: str) -> Callable[[Driver, Faults], None]:
    def meanwhile(driver: Driver, faults: Faults) -> None:
        wait_until(lambda: len(faults.arrivals(point)) >= CORES, 60)
        executor = driver.executors()[-1]
        workers = descendants(executor.pid)
        executor.kill()
        # A Python worker outlives its executor for a moment. One that is let go then may finish its portion.
        wait_until(lambda: not any(map(command_line, workers)), 30)
        faults.release(point)

    return meanwhile


def kill_python_workers(driver: Driver, faults: Faults) -> None:
    """Those at work, while both executors have one in its sink."""
    wait_until(lambda: len(faults.arrivals(SINK_DONE)) >= CORES, 60)
    for pid in list(marked(driver._cluster.mark)):
        if "pyspark.daemon" in command_line(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    faults.release(SINK_DONE)


SCENARIOS = (
    Scenario("undisturbed", repeats=False),
    Scenario("a task dies before its sink has taken anything of a portion", {SINK_BEGUN: "fail"}),
    Scenario("a task dies before it acks", {SINK_DONE: "fail"}),
    Scenario("a task dies after it has acked", {ACKED: "fail"}),
    Scenario("a slow task has a copy", {SINK_DONE: "copy"}, speculation=True),
    Scenario("an executor is killed in the sink", {SINK_BEGUN: "hold"}, meanwhile=kill_executor(SINK_BEGUN)),
    Scenario("Python workers are killed", {SINK_DONE: "hold"}, meanwhile=kill_python_workers),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_no_message_is_wrong(
    spark_cluster: StandaloneCluster, acker: Acker, tmp_path: Path, scenario: Scenario
) -> None:
    faults = Faults(str(tmp_path), scenario.plan)
    driver = spark_cluster.shared_driver(speculation=scenario.speculation)
    driver.wait_for_executors()
    driver.start(JOB, settings_for(acker, tmp_path, plan=scenario.plan))
    scenario.meanwhile(driver, faults)
    result = driver.result()

    sunk = reconcile(acker, tmp_path)
    assert (result["tracked"], result["completed"], result["dead"]) == (ROWS, ROWS - len(FAILING), len(FAILING))
    assert max(sunk.values()) <= 2
    if not scenario.speculation:  # two copies that live take the same portions into their sinks
        assert sunk.total() - len(sunk) <= CORES * BATCH_ROWS
    if scenario.repeats:
        assert sum(map(faults.repeats, (SINK_BEGUN, SINK_DONE, ACKED))) > 0


def kill_driver(cluster: StandaloneCluster, acker: Acker, directory: Path) -> None:
    """In the middle of a job: each core is in the sink with its third portion."""
    faults = Faults(str(directory), {ACKED: "hold"})
    driver = cluster.shared_driver()
    driver.wait_for_executors()
    driver.start(JOB, settings_for(acker, directory, plan={ACKED: "hold"}))
    wait_until(lambda: len(faults.arrivals(ACKED)) >= CORES, 60)
    executors = driver.executors()
    driver.kill()
    faults.release(ACKED)
    wait_until(lambda: not any(command_line(one.pid) for one in executors), 60)
    acker.shards.ask(0, "DEL", acker.shards.keys[0].lease(acker.spout_number(SPOUT)))  # as by time


def run_again(cluster: StandaloneCluster, acker: Acker, directory: Path, **changes: Any) -> dict[str, Any]:
    driver = cluster.shared_driver()
    driver.wait_for_executors()
    result: dict[str, Any] = driver.run(JOB, settings_for(acker, directory, **changes))
    return result


def test_a_driver_that_is_killed_is_followed_by_one_that_goes_on(
    spark_cluster: StandaloneCluster, acker: Acker, tmp_path: Path
) -> None:
    kill_driver(spark_cluster, acker, tmp_path)
    before = {number for _, numbers in booked.read_log(tmp_path, booked.SUNK) for number in numbers}

    result = run_again(spark_cluster, acker, tmp_path)

    sunk = reconcile(acker, tmp_path)
    assert (result["tracked"], result["completed"]) == (ROWS, ROWS - len(FAILING))
    assert 0 < result["completed_before"] <= len(before)
    assert any("continuing with the rest" in line for line in result["said"])
    assert sunk.total() - len(sunk) <= CORES * BATCH_ROWS


OVER_AGAIN: dict[str, dict[str, Any]] = {
    "split into different partitions (as with another number of cores)": {"partitions": PARTITIONS + 2},
    "it was told to, with resume=False": {"resume": False},
}


@pytest.mark.parametrize("why", OVER_AGAIN)
def test_a_driver_that_starts_over_says_why(
    spark_cluster: StandaloneCluster, acker: Acker, tmp_path: Path, why: str
) -> None:
    kill_driver(spark_cluster, acker, tmp_path)
    logs = tmp_path / "again"
    logs.mkdir()

    result = run_again(spark_cluster, acker, logs, **OVER_AGAIN[why])

    assert (result["tracked"], result["completed"]) == (ROWS, ROWS - len(FAILING))
    assert result["completed_before"] == 0
    assert any(why in line for line in result["said"])
    sunk = Counter(number for _, numbers in booked.read_log(logs, booked.SUNK) for number in numbers)
    assert sunk == dict.fromkeys(set(range(ROWS)) - FAILING, 1)
    assert acker.pending_count(SPOUT) == 0
