"""The store against plain HSET: throughput, memory, and the longest script call with ten million roots pending."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median

import numpy as np
import redis
from numpy.typing import NDArray

from benchmarks.common import CallClock, Report, Target, hset_per_s, seconds
from redis_acker import Acker, Rotator, new_edges
from redis_acker.embedded import EmbeddedServer
from redis_acker.ids import U64Array
from redis_acker.scripts import script

ROUNDS = 9
HSET_REQUESTS = 200_000
ROUND_ROOTS = 300_000
ROUND_LONE = 5_000

MEMORY_ROOTS = 1_000_000
MEMORY_LONE = 90_000
"""Between two sizes of the server's hash table (2**16 and 2**17), so neither its best case nor its worst."""

# Ten million in all.
PENDING_BLOCKED = 9_700_000
PENDING_LONE = 100_000
PENDING_WITH_IDS = 100_000
PENDING_RESTARTING = 100_000
USED = 300_000
"""Among so many roots of a namespace some complete, fail or are extended; the others are acked once and time out."""

LONG_MS = 3_600_000
TICK_MS = LONG_MS // 2


def measure(say: Callable[[str], None]) -> Report:
    """All of it, on one fresh server after the other. say gets a line as each part begins."""
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
    return report


def throughput(report: Report, server: EmbeddedServer) -> None:
    """Medians over rounds of the ratio to HSET, which is measured again in each round. The first round warms up."""
    blocks = Acker(server.url, namespace="blocks", timeout_ms=LONG_MS)
    lone = Acker(server.url, namespace="lone", timeout_ms=LONG_MS, block_size=1)
    ratios: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS + 1):
        hset = hset_per_s(server, HSET_REQUESTS)
        ratios["hset_per_s"].append(hset)
        for name, per_s in (_round(blocks, ROUND_ROOTS) | _lone_round(lone)).items():
            ratios[name].append(per_s / hset)
    typical = {name: median(found[1:]) for name, found in ratios.items()}
    blocks.close()
    lone.close()
    report.add("hset_per_s", "HSET requests/s, redis-benchmark -P 64", typical["hset_per_s"])
    report.add("ack_blocks_vs_hset", "acks/s in blocks / HSET", typical["ack"], Target(">=", 8))
    report.add("init_blocks_vs_hset", "inits/s in blocks / HSET", typical["init"])
    report.add("complete_blocks_vs_hset", "completing acks/s in blocks / HSET", typical["complete"])
    report.add("ack_shuffled_vs_hset", "acks/s in blocks, in random order / HSET", typical["shuffled"])
    report.add("roots_vs_hset", "roots/s, from init to their completion read / HSET", typical["roots"])
    report.add("init_lone_vs_hset", "inits/s of lone roots / HSET", typical["lone_init"])
    report.add("ack_lone_vs_hset", "acks/s of lone roots / HSET", typical["lone_ack"])


def _round(acker: Acker, count: int) -> dict[str, float]:
    """Operations per second of a batch of roots, from init to completion."""
    roots = acker.allocate("spout", count)
    first, second, third = new_edges(count), new_edges(count), new_edges(count)
    order = np.random.default_rng(count).permutation(count)
    shuffled_roots, shuffled_vals = roots[order], (second ^ third)[order]
    init = seconds(lambda: acker.init(roots, first))
    ack = seconds(lambda: acker.ack(roots, first ^ second))
    shuffled = seconds(lambda: acker.ack(shuffled_roots, shuffled_vals))
    complete = seconds(lambda: acker.ack(roots, third))
    read = seconds(lambda: _consume(acker, count))
    return {
        "init": count / init,
        "ack": count / ack,
        "shuffled": count / shuffled,
        "complete": count / complete,
        "roots": count / (init + ack + complete + read),
    }


def _lone_round(acker: Acker) -> dict[str, float]:
    found = _round(acker, ROUND_LONE)
    return {"lone_init": found["init"], "lone_ack": found["ack"]}


def _consume(acker: Acker, expected: int) -> None:
    with acker.completions("spout") as completions:
        found = sum(len(completion) for completion in completions.consume())
    if found != expected:
        raise RuntimeError(f"{found} of {expected} roots were complete")


def memory(report: Report, server: EmbeddedServer) -> None:
    """The growth of the server's used_memory for each pending root."""
    for name, words, block_size, count, target in (
        ("block", "in full blocks", None, MEMORY_ROOTS, 12),
        ("lone", "alone", 1, MEMORY_LONE, 100),
    ):
        with Acker(server.url, namespace=name, timeout_ms=LONG_MS, block_size=block_size) as acker:
            roots, edges = acker.allocate("spout", count), new_edges(count)
            before = _used_memory(server)
            acker.init(roots, edges)
            fresh = (_used_memory(server) - before) / count
            acker.ack(roots, new_edges(count))
            acked = (_used_memory(server) - before) / count
        report.add(f"bytes_per_root_{name}", f"bytes per pending root {words}", fresh, Target("<=", target))
        report.add(f"bytes_per_root_{name}_acked", "the same after an ack, with its token", acked, Target("<=", target))


def _used_memory(server: EmbeddedServer) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(client.info("memory")["used_memory"])


def longest_call(report: Report, server: EmbeddedServer) -> None:
    """Every kind of script call while ten million roots are pending, then rotations and the drain of all of them."""
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
    """Acks all roots, then fails, extends and looks at some, so that blocks of every kind are there for the drain."""
    later = new_edges(len(roots))
    acker.ack(roots, edges ^ later)
    random = np.random.default_rng(1)

    def some(share: float) -> NDArray[np.int64]:
        among = min(len(roots), USED)
        return random.choice(among, int(among * share), replace=False)

    few = some(0.02)
    acker.ack(roots[few], later[few])  # complete: their blocks are partly finished from here on
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
