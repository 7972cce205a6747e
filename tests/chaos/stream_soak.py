"""A soak of a tracked streaming query: half of what it can carry, with a fault every few seconds. `make stream-soak`
runs it.

    python -m tests.chaos.stream_soak [--minutes 10] [--seed N] [--per-s N]

Prints what was carried, and the memory of driver, workers and server early and late: it must not grow.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from statistics import median

from tests.chaos.harness import faults, stream
from tests.chaos.harness.faults import Fault
from tests.chaos.harness.journal import read
from tests.chaos.harness.verdict import Verdict
from tests.chaos.harness.world import World
from tests.chaos.soak import FLAT, bytes_of, server_bytes
from tests.spark.processes import command_line, marked
from tests.waiting import wait_until

STORE = "redis-7.0"
FAULTS: tuple[Fault, ...] = (
    faults.kill_some_worker,
    faults.kill_connections,
    faults.cut_replies,
    faults.stop_server,
    faults.kill_server,
    faults.kill_rotator,
    faults.restart_query,
)
PAUSES_S = (3, 6)
"""Between two faults."""

WARM_UP_S = 20
MEASURE_S = 20
END_AFTER_S = 180
MB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.stream_soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--per-s", type=float, help="messages that come in a second (half of what is measured first)")
    options = parser.parse_args()
    per_s = options.per_s or measure(options.seed) / 2
    found = Soak(options.seed, per_s).run(60 * options.minutes)
    print(json.dumps(found, indent=2))
    sys.exit(0 if found["is_good"] and found["is_flat"] else 1)


def measure(seed: int) -> float:
    """Messages a second that are over, if as many come as can."""
    with World(STORE, "stream", seed, 0) as world:
        world.wait_for_begin()
        time.sleep(WARM_UP_S)
        before, began_s = _completed(world), time.monotonic()
        time.sleep(MEASURE_S)
        return (_completed(world) - before) / (time.monotonic() - began_s)


def _completed(world: World) -> int:
    return sum(one.completed for one in world.acker.stats().spouts)


class Soak:
    """One query under faults."""

    def __init__(self, seed: int, per_s: float) -> None:
        self._seed, self._per_s = seed, per_s
        self._injected = Counter[str]()
        self._memory: dict[str, list[int]] = {"driver": [], "workers": [], "server": []}

    def run(self, seconds: float) -> dict[str, object]:
        with World(STORE, "stream", self._seed, 0, per_s=self._per_s) as world:
            world.wait_for_begin()
            self._go_on(world, time.monotonic() + seconds)
            self._end(world)
            verdict = stream.judge(world.folder, world.acker, self._per_s)
            self._memory["heap"] = [facts[0] for what, _, facts in read(world.folder / "queries") if what == "heap"]
            ended = [facts[0] for what, _, facts in read(world.folder / "queries") if what == "ended"]
        return {**self._report(seconds, verdict), "queries_that_ended": ended}

    def _go_on(self, world: World, end_s: float) -> None:
        next_fault_s = 0.0
        while time.monotonic() < end_s:
            time.sleep(1)
            self._look(world)
            if time.monotonic() >= next_fault_s:
                fault = world.rng.choice(FAULTS)
                fault(world)
                world.revive()
                self._injected[fault.__name__] += 1
                next_fault_s = time.monotonic() + world.rng.uniform(*PAUSES_S)

    def _look(self, world: World) -> None:
        driver = world.processes["spark"].pid
        workers = [one for one in marked(world.namespace) if any(map(_is_worker, command_line(one)))]
        found = {
            "driver": bytes_of(driver),
            "workers": max(map(bytes_of, workers), default=0),  # the largest: how many there are changes
            "server": server_bytes(world),
        }
        for what, size in found.items():
            self._memory[what].append(size)

    def _end(self, world: World) -> None:
        """Nothing more comes, and what has come is brought to its end."""
        world.processes.pop("sender").stop()
        with world.client(world.servers[0]) as client:
            (world.folder / stream.FED).write_text(str(stream.fed_so_far(client)))
        world.revive()
        wait_until(world.is_done, END_AFTER_S, 0.2)

    def _report(self, seconds: float, verdict: Verdict) -> dict[str, object]:
        grown = {what: _early_and_late(sizes) for what, sizes in self._memory.items()}
        return {
            "seed": self._seed,
            "minutes": seconds / 60,
            "per_s": round(self._per_s),
            "faults": dict(self._injected),
            "carried": verdict.carried,
            "sunk_again": verdict.replays,
            "longest_stall_s": round(verdict.stall_s, 1),
            **verdict.wrong,
            **{f"{what}_mb": [round(size / MB, 1) for size in sizes] for what, sizes in grown.items()},
            "is_good": verdict.is_good,
            "is_flat": all(late <= FLAT * early for early, late in grown.values()),
        }


def _is_worker(word: str) -> bool:
    """In a command line: a Python worker, or what runs the source in Python for Java."""
    return word.startswith("pyspark.")


def _early_and_late(sizes: list[int]) -> tuple[float, float]:
    """In the second quarter and in the last."""
    early, late = sizes[len(sizes) // 4 : len(sizes) // 2], sizes[3 * len(sizes) // 4 :]
    return median(early), median(late)


if __name__ == "__main__":
    main()
