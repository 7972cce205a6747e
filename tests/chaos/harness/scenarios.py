"""The scenarios: a store, a load, and the faults that come while it runs."""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass, field

from redis_acker.errors import AckerError
from tests.chaos.harness import faults, operator, pipeline, roots, spark, tasks
from tests.chaos.harness.faults import Fault
from tests.chaos.harness.verdict import Verdict
from tests.chaos.harness.world import World
from tests.waiting import wait_until

PAUSES_S = (0.3, 1.2)
"""Between two faults."""

END_AFTER_S = 180
"""How long a load may need to come to its end once no more faults come."""


ENDLESS = ("roots", "operator")
"""Loads that end when they are told to."""


@dataclass(frozen=True)
class Scenario:
    name: str
    store: str
    load: str
    faults: tuple[Fault, ...]
    bug: str = ""
    least_faults: int = 0
    """However long they take."""
    may_deny: bool = False
    """Whether roots may time out before their time: their clock runs ahead."""


@dataclass
class Outcome:
    scenario: Scenario
    seed: int
    injected: dict[str, int] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)
    recovered_s: float = 0.0
    """From the last fault to the end of all work that it left."""


CONNECTIONS = (
    faults.cut_replies,
    faults.halve_replies,
    faults.delay_replies,
    faults.cut_connections,
    faults.kill_connections,
    faults.forget_scripts,
)
SERVER = (faults.kill_server, faults.stop_server, faults.rewrite_aof, faults.fill_memory)
PROCESSES = (faults.kill_process, faults.stop_process)
SPARK = (faults.kill_python_worker, faults.kill_executor, faults.kill_spark_driver)
WORKERS = (faults.kill_process, faults.leave_zombies)

SCENARIOS = (
    Scenario("connections", "redis-7.0", "roots", CONNECTIONS),
    Scenario("server", "valkey-9.1", "roots", SERVER),
    Scenario("processes", "redis-6.2", "roots", (*PROCESSES, faults.write_junk)),
    Scenario("cluster", "cluster", "roots", (faults.restart_node, faults.move_slot, faults.kill_process)),
    Scenario("drivers", "redis-7.0", "two pipelines", (*PROCESSES, *CONNECTIONS, faults.write_junk)),
    Scenario("driver and server", "valkey-9.1", "pipeline", (*SERVER, faults.kill_process)),
    Scenario("machine goes down", "redis-7.0 everysec", "pipeline", (faults.cut_aof, faults.stop_server)),
    Scenario(
        *("clock is set", "valkey-9.1 with a clock", "roots"),
        (faults.step_clock, faults.kill_process, faults.kill_server),
        may_deny=True,
    ),
    Scenario("drain and replay", "redis-6.2", "operator", (*PROCESSES, *CONNECTIONS)),
    Scenario("tasks of a Spark run", "redis-7.0", "tasks", (*WORKERS, *CONNECTIONS)),
    Scenario("Spark", "valkey-9.1", "spark", SPARK, least_faults=3),
    Scenario("failover", "sentinel", "pipeline", (faults.promote_replica, faults.kill_connections)),
)


def run(scenario: Scenario, *, seed: int, seconds: float, messages: int, end_after_s: float = END_AFTER_S) -> Outcome:
    """Runs a load for some seconds under faults, lets it come to its end, and compares what is known."""
    outcome, rng = Outcome(scenario, seed), random.Random(seed)
    with World(scenario.store, scenario.load, seed, messages, scenario.bug) as world:
        world.wait_for_begin()
        end_s = time.monotonic() + seconds
        while not world.is_done():
            if time.monotonic() >= end_s and sum(outcome.injected.values()) >= scenario.least_faults:
                break
            time.sleep(rng.uniform(*PAUSES_S))
            fault = rng.choice(scenario.faults)
            fault(world)
            outcome.injected[fault.__name__] = outcome.injected.get(fault.__name__, 0) + 1
            world.revive()
        last_fault_s = time.monotonic()
        end_load(world, end_after_s)
        outcome.recovered_s = time.monotonic() - last_fault_s
        outcome.verdict = _judge(world)
        if scenario.may_deny:
            outcome.verdict.wrong["denied"] = 0
    return outcome


def end_load(world: World, timeout_s: float) -> None:
    """Lets the load come to its end. What has not by then is counted as stuck."""
    for name in [name for name in world.processes if name.startswith("sender")]:
        world.processes.pop(name).stop()
    with contextlib.suppress(AssertionError):
        wait_until(lambda: _is_over(world), timeout_s, 0.2)


def _is_over(world: World) -> bool:
    world.revive()
    if world.load in ENDLESS or (world.load == "tasks" and world.is_done()):
        with contextlib.suppress(AckerError):
            return (
                operator.is_over(world.acker, world.folder) if world.load == "operator" else roots.is_over(world.acker)
            )
        return False
    return world.is_done()


def _judge(world: World) -> Verdict:
    if world.load == "operator":
        return operator.judge(world.acker, world.folder)
    judge = {"roots": roots.judge, "tasks": tasks.judge, "spark": spark.judge}.get(world.load, pipeline.judge)
    return judge(world.folder, pending=world.acker.pending_count())
