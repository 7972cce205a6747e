"""Loads under random faults, reconciled with an independent log; and bugs that this must notice."""

from __future__ import annotations

import random

import pytest

from tests.chaos.harness import faults
from tests.chaos.harness.planted import BUGS
from tests.chaos.harness.scenarios import CONNECTIONS, SCENARIOS, Scenario, run

CAUGHT_AS = {
    "token ignored": "denied",
    "completion before all acks": "false",
    "drain deletes and does not tell": "lost",
    "expired bucket dropped": "stuck",
}

OF_TASKS = {
    "done mark without ownership": faults.leave_zombies,
    "ack at the end of a truncated input": faults.kill_process,
}
"""Bugs that tasks of a Spark run meet, and the fault that leads to them."""


@pytest.mark.full
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_nothing_is_lost_or_wrongly_complete_whatever_fails(scenario: Scenario) -> None:
    seed = random.randrange(1 << 20)
    print(f"{scenario.name}: seed {seed}")
    outcome = run(scenario, seed=seed, seconds=12, messages=8000)
    assert outcome.verdict.is_good, outcome


@pytest.mark.full
@pytest.mark.parametrize("bug", CAUGHT_AS)
def test_a_planted_bug_is_noticed(bug: str) -> None:
    faulty = Scenario(bug, "redis-7.0", "roots", (*CONNECTIONS, faults.kill_process), bug)
    outcome = run(faulty, seed=1, seconds=6, messages=0, end_after_s=20)
    assert outcome.verdict.wrong[CAUGHT_AS[bug]], outcome


@pytest.mark.full
@pytest.mark.parametrize("bug", OF_TASKS)
def test_a_planted_bug_of_tasks_is_noticed(bug: str) -> None:
    """It takes two that meet at the wrong moment: several runs are tried."""
    faulty = Scenario(bug, "redis-7.0", "tasks", (OF_TASKS[bug],), bug)
    outcomes = (run(faulty, seed=seed, seconds=20, messages=20_000, end_after_s=1) for seed in range(8))
    assert any(outcome.verdict.wrong["false"] for outcome in outcomes)


def test_every_planted_bug_has_a_test() -> None:
    assert {*CAUGHT_AS, *OF_TASKS} == {*BUGS}
