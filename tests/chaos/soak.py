"""A soak: half of what the machine can carry, for long, with a fault now and then. `make soak` runs it.

    python -m tests.chaos.soak [--minutes 20] [--seed N]

Prints what was carried, and the memory of the server and of the processes early and late: it must not grow.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from statistics import median

from tests.chaos.harness import faults, roots
from tests.chaos.harness.faults import Fault
from tests.chaos.harness.journal import from_runs, read
from tests.chaos.harness.scenarios import end_load
from tests.chaos.harness.world import World

STORE = "valkey-9.1"
FAULTS: tuple[Fault, ...] = (faults.kill_connections, faults.cut_replies, faults.stop_server, faults.kill_rotator)
FAULT_EVERY_S = 10
MEASURE_S = 10
FLAT = 1.1
"""Memory late over memory early, at most."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    options = parser.parse_args()
    most_per_s = _measure(options.seed)
    found = {"seed": options.seed, "most_per_s": round(most_per_s), **_soak(options, most_per_s / 2)}
    print(json.dumps(found, indent=2))
    sys.exit(0 if found["is_good"] and found["is_flat"] else 1)


def _measure(seed: int) -> float:
    """Roots a second without a limit."""
    with World(STORE, "roots", seed, 0) as world:
        world.wait_for_begin()
        before, began_s = _sent(world), time.monotonic()
        time.sleep(MEASURE_S)
        return (_sent(world) - before) / (time.monotonic() - began_s)


def _sent(world: World) -> int:
    return sum(len(from_runs(runs)) for what, _, [runs] in read(world.folder / "sent") if what == "init")


def _soak(options: argparse.Namespace, per_s: float) -> dict[str, object]:
    memory: list[tuple[int, int]] = []
    injected = 0
    with World(STORE, "roots", options.seed, 0, per_s=per_s / 2) as world:  # two senders
        world.wait_for_begin()
        end_s = time.monotonic() + 60 * options.minutes
        next_fault_s = time.monotonic() + FAULT_EVERY_S
        while time.monotonic() < end_s:
            time.sleep(1)
            memory.append((server_bytes(world), sum(bytes_of(one.pid) for one in world.processes.values())))
            if time.monotonic() >= next_fault_s:
                world.rng.choice(FAULTS)(world)
                world.revive()
                injected, next_fault_s = injected + 1, time.monotonic() + FAULT_EVERY_S
        end_load(world, 120)
        verdict = roots.judge(world.folder, pending=world.acker.pending_count())
    early, late = memory[len(memory) // 4 : len(memory) // 2], memory[3 * len(memory) // 4 :]
    grown = [median(one[i] for one in late) / median(one[i] for one in early) for i in range(2)]
    return {
        "minutes": options.minutes,
        "per_s": round(per_s),
        "faults": injected,
        "carried": verdict.carried,
        **verdict.wrong,
        "server_memory_late_over_early": round(grown[0], 3),
        "process_memory_late_over_early": round(grown[1], 3),
        "is_good": verdict.is_good,
        "is_flat": max(grown) <= FLAT,
    }


def server_bytes(world: World) -> int:
    with world.client(world.servers[0]) as client:
        return int(client.info("memory")["used_memory"])


def bytes_of(pid: int) -> int:
    """Resident memory of a process; 0 if it has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


if __name__ == "__main__":
    main()
