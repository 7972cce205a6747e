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


@pytest.mark.full
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_nothing_is_lost_or_wrongly_complete_whatever_fails(scenario: Scenario) -> None:
    seed = random.randrange(1 << 20)
    print(f"{scenario.name}: seed {seed}")
    outcome = run(scenario, seed=seed, seconds=12, messages=8000)
    assert outcome.verdict.is_good, outcome


@pytest.mark.full
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_noticed(bug: str) -> None:
    faulty = Scenario(bug, "redis-7.0", "roots", (*CONNECTIONS, faults.kill_process), bug)
    outcome = run(faulty, seed=1, seconds=6, messages=0, end_after_s=20)
    assert outcome.verdict.wrong[CAUGHT_AS[bug]], outcome
