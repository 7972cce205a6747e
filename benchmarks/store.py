"""The store against plain HSET: throughput, memory, and the longest script call with ten million roots pending."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import redis
from numpy.typing import NDArray

from benchmarks import stalls
from benchmarks.common import CallClock, Report, Target, hset_per_s
from redis_acker import Acker, Rotator, new_edges
from redis_acker.cli.measuring import bytes_per_root, measure_rounds, rates_of_a_round
from redis_acker.server.embedded import EmbeddedServer
from redis_acker.store.ids import U64Array
from redis_acker.store.scripts import script

ROUNDS = 9
HSET_REQUESTS = 200_000
ROUND_ROOTS = 300_000
ROUND_LONE = 5_000

MEMORY_ROOTS = 1_000_000
MEMORY_LONE = 90_000
"""Between two sizes of the server's hash table (2**16 and 2**17): neither its best case nor its worst."""

# Ten million in all.
PENDING_BLOCKED = 9_700_000
PENDING_LONE = 100_000
PENDING_WITH_IDS = 100_000
PENDING_RESTARTING = 100_000
USED = 300_000
"""Among this many roots of a namespace, some complete, fail or are extended; the others are acked once and time out."""

LONG_MS = 3_600_000
TICK_MS = LONG_MS // 2


def measure(say: Callable[[str], None]) -> Report:
    """Everything, each part on a fresh server. say gets a line when a part begins."""
    say("throughput ...")
    with EmbeddedServer() as server:
        with Acker(server.url) as acker:
            block_size = acker.settings.block_size
        report = Report("store", {"server": server.version, "block_size": block_size, "rounds": ROUNDS})
        throughput(report, server)
    say("memory ...")
    with EmbeddedServer() as server:
        memory(report, server)
    say("longest script call, 10 million roots pending ...")
    with EmbeddedServer(config={"slowlog-log-slower-than": "1000", "slowlog-max-len": "100000"}) as server:
        longest_call(report, server)
    say("stalls while 5 million roots expire ...")
    with EmbeddedServer(config=stalls.CONFIG) as server:
        stalls.stalls(report, server)
    say("how fast roots expire ...")
    with EmbeddedServer() as server:
        stalls.draining(report, server)
    return report


def throughput(report: Report, server: EmbeddedServer) -> None:
    """Medians over rounds of the ratio to HSET, which is measured again in each round."""
    blocks = Acker(server.url, namespace="blocks", timeout_ms=LONG_MS)
    lone = Acker(server.url, namespace="lone", timeout_ms=LONG_MS, block_size=1)

    def rates() -> dict[str, float]:
        in_blocks = rates_of_a_round(blocks, ROUND_ROOTS, is_full=True)
        alone = rates_of_a_round(lone, ROUND_LONE, is_full=True)
        return in_blocks | {f"lone_{name}": rate for name, rate in alone.items()}

    rounds = measure_rounds(ROUNDS, lambda: hset_per_s(server, HSET_REQUESTS), rates)
    blocks.close()
    lone.close()
    report.add("hset_per_s", "HSET requests/s, redis-benchmark -P 64", rounds.hset_per_s)
    report.add("ack_blocks_vs_hset", "acks/s in blocks / HSET", rounds.vs_hset("ack"), Target(">=", 8))
    report.add("init_blocks_vs_hset", "inits/s in blocks / HSET", rounds.vs_hset("init"))
    report.add("complete_blocks_vs_hset", "completing acks/s in blocks / HSET", rounds.vs_hset("complete"))
    report.add("ack_shuffled_vs_hset", "acks/s in blocks, in random order / HSET", rounds.vs_hset("shuffled"))
    report.add("roots_vs_hset", "roots/s, from init to reading their completion / HSET", rounds.vs_hset("roots"))
    report.add("init_lone_vs_hset", "inits/s of lone roots / HSET", rounds.vs_hset("lone_init"))
    report.add("ack_lone_vs_hset", "acks/s of lone roots / HSET", rounds.vs_hset("lone_ack"))


def memory(report: Report, server: EmbeddedServer) -> None:
    """The growth of the server's used_memory per pending root."""
    for name, words, block_size, count, target in (
        ("block", "in full blocks", None, MEMORY_ROOTS, 12),
        ("lone", "alone", 1, MEMORY_LONE, 100),
    ):
        with (
            Acker(server.url, namespace=name, timeout_ms=LONG_MS, block_size=block_size) as acker,
            redis.Redis.from_url(server.url) as client,
        ):
            fresh, acked = bytes_per_root(acker, count, lambda: int(client.info("memory")["used_memory"]))
        report.add(f"bytes_per_root_{name}", f"bytes per pending root {words}", fresh, Target("<=", target))
        report.add(f"bytes_per_root_{name}_acked", "the same after an ack, with its token", acked, Target("<=", target))


def longest_call(report: Report, server: EmbeddedServer) -> None:
    """Every kind of script call while ten million roots are pending, then the rotations and drains that expire them."""
    now_ms = int(time.time() * 1000)
    calls: dict[str, list[float]] = defaultdict(list)
    ackers = []

    def opened(name: str, *, block_size: int | None = None, restarts: bool = False) -> Acker:
        acker = Acker(
            server.url,
            namespace=name,
            timeout_ms=LONG_MS,
            block_size=block_size,
            ack_restarts_clock=restarts,
            clock=lambda: now_ms,
        )
        CallClock(acker, server, calls)
        ackers.append(acker)
        return acker

    blocks, lone = opened("blocks"), opened("lone", block_size=1)
    with_ids, restarting = opened("ids"), opened("restarting", restarts=True)
    work = [
        _fill(blocks, PENDING_BLOCKED),
        _fill(lone, PENDING_LONE),
        _fill(with_ids, PENDING_WITH_IDS, message_ids=[f"topic/{i}" for i in range(PENDING_WITH_IDS)]),
        _fill(restarting, PENDING_RESTARTING),
    ]
    for acker, (roots, edges) in zip(ackers, work, strict=True):
        _use(acker, roots, edges)
    for turn in range(blocks.settings.buckets + 1):
        now_ms += TICK_MS + 1
        for acker, (roots, _) in zip(ackers, work, strict=True):
            Rotator(acker).once()
            if turn == 0:
                acker.extend(roots[::500])  # so that the drain files some of them again
    left = sum(acker.pending_count() for acker in ackers)
    if left:
        raise RuntimeError(f"{left} roots are pending after the drain")
    for acker in ackers:
        acker.close()
    _report_calls(report, server, calls)


def _fill(acker: Acker, count: int, *, message_ids: list[str] | None = None) -> tuple[U64Array, U64Array]:
    roots, edges = acker.allocate("spout", count), new_edges(count)
    acker.init(roots, edges, message_ids=message_ids)
    return roots, edges


def _use(acker: Acker, roots: U64Array, edges: U64Array) -> None:
    """Acks all roots, then fails, extends and looks at some, so that the drain meets blocks of every kind."""
    later = new_edges(len(roots))
    acker.ack(roots, edges ^ later)
    random = np.random.default_rng(1)

    def some(share: float) -> NDArray[np.int64]:
        among = min(len(roots), USED)
        return random.choice(among, int(among * share), replace=False)

    few = some(0.02)
    acker.ack(roots[few], later[few])  # these complete, so their blocks are partly finished from here on
    acker.fail(roots[some(0.01)], component="benchmark", error="at random")
    acker.extend(roots[some(0.01)])
    acker.ack(roots[: USED // 4], later[: USED // 4])
    for root in roots[few[:100]].tolist():
        acker.inspect(root)
    for _ in itertools.islice(acker.pending(), 25_000):
        pass


def _report_calls(report: Report, server: EmbeddedServer, calls: dict[str, list[float]]) -> None:
    longest = {name: max(found) for name, found in calls.items()}
    report.add("longest_script_ms", "longest script call, ms of server CPU", max(longest.values()), Target("<=", 5))
    for name in sorted(longest, key=lambda one: -longest[one]):
        report.add(f"longest_{name}_ms", f"  {name}, of {len(calls[name]):,} calls", longest[name])
    with redis.Redis.from_url(server.url) as client:
        entries = [[*entry["command"].split(b" ")[:2], entry["duration"]] for entry in client.slowlog_get(100_000)]
    by_sha = {script(name).sha.encode() for name in calls}
    wall = [duration for command, sha, duration in entries if command == b"EVALSHA" and sha in by_sha]
    report.add("longest_script_wall_ms", "the same by the wall clock (slow log)", max(wall, default=0) / 1000)
