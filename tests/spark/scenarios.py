"""All the ways in which Spark runs the same work twice, played on the cluster with any job.

A job is the name of a module with run(spark, settings: Settings), such as tests.spark.jobs.naive. It initialises
settings["roots"] roots of settings["spout"], brings each through two steps with a shuffle between them, and passes the
points of tests.spark.jobs.faults in every task. settings["looks"] times it counts the rows of the first step, then it
brings the whole to its sink settings["sinks"] times. It returns {"roots": the roots, as unsigned integers}.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from redis_acker import Acker
from tests.spark.cluster import HOSTS, Driver, StandaloneCluster
from tests.spark.jobs.faults import FIRST_DONE, SECOND_BEGUN, SECOND_DONE, Fault, Faults
from tests.waiting import wait_until

#: Enough for the faults to strike in the middle. SCENARIO_ROOTS=50000 makes half a million of all tracked scenarios.
ROOTS = int(os.environ.get("SCENARIO_ROOTS", "5000"))
SPOUT = "rows"


class Settings(TypedDict):
    """What a job is told."""

    url: str
    namespace: str
    spout: str
    roots: int
    looks: int
    sinks: int
    directory: str
    plan: dict[str, Fault]


@dataclass(frozen=True)
class Scenario:
    """One way in which a job runs its tasks more than once."""

    name: str
    plan: dict[str, Fault] = field(default_factory=dict)
    speculation: bool = False
    looks: int = 0
    sinks: int = 1
    meanwhile: Callable[[Driver, Faults], None] = lambda driver, faults: None
    repeated: tuple[str, ...] = (FIRST_DONE,)
    """Points that tasks must have passed twice: else the scenario has not played."""

    def __str__(self) -> str:
        return self.name


def kill_one_executor(driver: Driver, faults: Faults) -> None:
    """SIGKILL while both executors are in the second step; the first step's files on one of them are lost."""
    wait_until(lambda: len(faults.arrivals(SECOND_BEGUN)) >= len(HOSTS), 60)
    driver.executors()[-1].kill(lose_files=True)
    faults.release(SECOND_BEGUN)


UNDISTURBED = Scenario("undisturbed", repeated=())
TASK_RETRY = Scenario("a task fails after its acks were sent", {FIRST_DONE: "fail"})
SPECULATION = Scenario("a slow task has a copy", {FIRST_DONE: "copy"}, speculation=True)
EXECUTOR_LOSS = Scenario("an executor is killed", {SECOND_BEGUN: "hold"}, meanwhile=kill_one_executor)
SECOND_ACTION = Scenario("a second action on the first step's frame", looks=1)
SECOND_SINK = Scenario("a second action on the whole frame", sinks=2, repeated=(FIRST_DONE, SECOND_DONE))

#: Nothing is repeated while a root is pending.
HARMLESS = (UNDISTURBED, SECOND_SINK)
HARMFUL = (TASK_RETRY, SPECULATION, EXECUTOR_LOSS, SECOND_ACTION)
SCENARIOS = (*HARMLESS, *HARMFUL)


@dataclass(frozen=True)
class Books:
    """What became of the roots of a job."""

    wrong: int
    """Roots that did not have the one final event they should have, and strange roots that had one."""
    completed: int
    failed: int
    pending: int
    result: dict[str, Any]
    """What the job returned."""


def play(
    cluster: StandaloneCluster,
    scenario: Scenario,
    job: str,
    *,
    acker: Acker,
    directory: Path,
    roots: int = ROOTS,
    aqe: bool = True,
) -> Any:
    """Runs the job under the scenario, and makes sure that work was repeated. Returns what the job returns."""
    settings = Settings(
        url=",".join(acker.urls),
        namespace=acker.namespace,
        spout=SPOUT,
        roots=roots,
        looks=scenario.looks,
        sinks=scenario.sinks,
        directory=str(directory),
        plan=scenario.plan,
    )
    faults = Faults(str(directory), scenario.plan)
    driver = cluster.shared_driver(speculation=scenario.speculation)
    driver.wait_for_executors()
    driver.start(job, dict(settings), aqe=aqe)
    scenario.meanwhile(driver, faults)
    result = driver.result()
    for point in scenario.repeated:
        assert faults.repeats(point) > 0, f"no task passed {point!r} twice: {faults.arrivals(point)}"
    return result


def balance(acker: Acker, result: dict[str, Any], *, failing: Collection[int] = ()) -> Books:
    """Compares final events with what they should be: a failure for `failing`, a completion for the other roots."""
    with acker.completions(SPOUT) as completions, acker.failures(SPOUT) as failures:
        completed = Counter(root for outcome in completions.consume() for root in outcome.roots.tolist())
        failed = Counter(root for outcome in failures.consume() for root in outcome.roots.tolist())
    roots = set(result["roots"])
    right = {root for root in roots if (completed[root], failed[root]) == ((0, 1) if root in failing else (1, 0))}
    return Books(
        wrong=len((roots | set(completed) | set(failed)) - right),
        completed=completed.total(),
        failed=failed.total(),
        pending=acker.pending_count(SPOUT),
        result=result,
    )
