"""Runs every scenario and prints what came of it. `make chaos` and `make soak` call it."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence

from tests.binaries import INSTALL, faketime_library
from tests.chaos.harness.scenarios import SCENARIOS, Outcome, run

COLUMNS = {
    "scenario": "scenario",
    "store": "store",
    "faults": "faults",
    "carried": "carried",
    "again": "again",
    "lost": "lost",
    "false": "false",
    "stuck": "stuck",
    "twice": "twice",
    "denied": "denied",
    "innocents": "innocents",
    "longest_stall_s": "stall, s",
    "recovered_s": "all done after, s",
}


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
        if scenario.store.endswith("with a clock") and not faketime_library():
            print(f"{scenario.name}: left out, {INSTALL['faketime']}", file=sys.stderr)
            continue
        outcome = run(scenario, seed=options.seed, seconds=options.seconds, messages=options.messages)
        outcomes.append(outcome)
        print(f"{scenario.name}: {'good' if outcome.verdict.is_good else outcome}", file=sys.stderr)
    if options.json:
        print(json.dumps([facts(one) for one in outcomes]))
    else:
        print("\n".join(table(outcomes)))
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


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """For people, and for docs/reliability.md."""
    yield f"| {' | '.join(COLUMNS.values())} |"
    yield "|---" * len(COLUMNS) + "|"
    for outcome in outcomes:
        found = {**facts(outcome), "faults": sum(outcome.injected.values())}
        cells = (f"{value:,}" if isinstance(value := found[name], int) else str(value) for name in COLUMNS)
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
