"""Runs every scenario and prints what came of it. `make chaos` and `make soak` call it."""

from __future__ import annotations

import argparse
import json
import random
import sys

from tests.chaos.harness.scenarios import SCENARIOS, Outcome, run

HEADS = ("scenario", "store", "faults", "carried", "again", "lost", "false", "stuck", "twice", "denied", "innocents")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20), help="repeats a run's faults and loads")
    parser.add_argument("--seconds", type=float, default=20, help="how long each scenario has faults (default 20)")
    parser.add_argument("--messages", type=int, default=20_000, help="of each pipeline (default 20000)")
    parser.add_argument("--only", help="the name of one scenario")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    wanted = [one for one in SCENARIOS if options.only in (None, one.name)]
    outcomes = []
    for scenario in wanted:
        outcome = run(scenario, seed=options.seed, seconds=options.seconds, messages=options.messages)
        outcomes.append(outcome)
        print(row(outcome), file=sys.stderr)
    if options.json:
        print(json.dumps([facts(one) for one in outcomes]))
    sys.exit(0 if all(one.verdict.is_good for one in outcomes) else 1)


def facts(outcome: Outcome) -> dict[str, object]:
    verdict, scenario = outcome.verdict, outcome.scenario
    return {
        "scenario": scenario.name,
        "store": scenario.store,
        "seed": outcome.seed,
        "injected": outcome.injected,
        "carried": verdict.carried,
        "again": verdict.replays,
        **verdict.wrong,
        "longest_stall_s": round(verdict.stall_s, 2),
        "recovered_s": round(outcome.recovered_s, 2),
    }


def row(outcome: Outcome) -> str:
    found = {**facts(outcome), "faults": sum(outcome.injected.values())}
    numbers = " ".join(f"{name} {found[name]:,}" for name in HEADS[2:])
    return f"{found['scenario']} on {found['store']}: {numbers}, stall {found['longest_stall_s']} s"


if __name__ == "__main__":
    main()
