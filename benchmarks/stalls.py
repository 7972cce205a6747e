"""How long the server is busy with one script, and how long another client waits meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import redis

from benchmarks.common import Report, Target
from redis_acker import Acker, Rotator, new_edges
from redis_acker.server.embedded import EmbeddedServer
from redis_acker.store.scripts import lua_folder, script

ROOTS = 5_000_000
BLOCK_ROOTS, LONE_ROOTS = 5_000_000, 200_000
LONG_MS = 3_600_000
LOGGED = "1000000"

CONFIG = {"slowlog-log-slower-than": "0", "slowlog-max-len": LOGGED}
"""Every command is in the slow log: it has the time that the server spent on it, as it saw it."""

CONTROL = "for i = 1, 20000 do end return 1"
"""A fixed amount of work. It touches no key, so whatever its longest run took beyond the shortest is the machine's."""

PINGER = """
import json, sys, time
import redis

client, waits, turn = redis.Redis.from_url(sys.argv[1]), [], 0
print("ready", flush=True)
while client.get("stop") is None:
    turn += 1
    if turn % 20 == 0:
        client.eval(sys.argv[2], 0)
    began = time.perf_counter()
    client.ping()
    waits.append(1000 * (time.perf_counter() - began))
    time.sleep(0.001)
print(json.dumps(waits))
"""
"""Another client, in a process of its own: a PING every millisecond, now and then the control."""


def stalls(report: Report, server: EmbeddedServer) -> None:
    """Initialises, acks and expires millions of roots while another client pings."""
    with redis.Redis.from_url(server.url) as client:
        pinger = subprocess.Popen(
            [sys.executable, "-c", PINGER, server.url, CONTROL], stdout=subprocess.PIPE, text=True
        )
        assert pinger.stdout is not None
        pinger.stdout.readline()
        _expire(server, "stalls", ROOTS, with_acks=True)
        client.set("stop", 1)
        waits: list[float] = json.loads(pinger.stdout.read())
        pinger.wait()
        entries = client.slowlog_get(int(LOGGED))
    ours = {script(path.name.removesuffix(".lua")).sha for path in lua_folder().iterdir() if path.name.endswith(".lua")}
    scripts, controls = [], []
    for entry in entries:
        name, _, rest = entry["command"].decode(errors="replace").partition(" ")
        if name == "EVALSHA" and rest.partition(" ")[0] in ours:
            scripts.append(entry["duration"] / 1000)
        elif name == "EVAL":
            controls.append(entry["duration"] / 1000)
    report.add("script_p9999_ms", "script call, 99.99 % by the slow log, ms", _share(scripts, 0.9999), Target("<=", 5))
    report.add("script_max_ms", f"  the longest of {len(scripts):,}", max(scripts))
    report.add("control_max_ms", f"  the longest of {len(controls):,} fixed loops", max(controls))
    report.add("control_p50_ms", "  such a loop as a rule", _share(controls, 0.5))
    report.add("ping_p999_ms", "PING of another client, 99.9 %, ms", _share(waits, 0.999), Target("<=", 10))
    report.add("ping_max_ms", f"  the longest of {len(waits):,}", max(waits))


def draining(report: Report, server: EmbeddedServer) -> None:
    """How fast roots expire: in blocks, and alone."""
    in_blocks = BLOCK_ROOTS / _expire(server, "blocks", BLOCK_ROOTS)
    alone = LONE_ROOTS / _expire(server, "lone", LONE_ROOTS, block_size=1)
    report.add("drain_block_per_s", "roots in blocks that expire per second", in_blocks)
    report.add("drain_lone_per_s", "lone roots that expire per second", alone)
    report.add("drain_lone_vs_block", "  lone / in blocks", alone / in_blocks)


def _expire(
    server: EmbeddedServer, namespace: str, count: int, *, block_size: int | None = None, with_acks: bool = False
) -> float:
    """Lets that many roots time out. Returns the seconds that their drain took."""
    now_ms = int(time.time() * 1000)
    with Acker(
        server.url, namespace=namespace, timeout_ms=LONG_MS, block_size=block_size, clock=lambda: now_ms
    ) as acker:
        roots, edges = acker.allocate("spout", count), new_edges(count)
        acker.init(roots, edges)
        if with_acks:
            acker.ack(roots, new_edges(count))
        for _ in range(acker.settings.buckets):
            now_ms += LONG_MS // 2 + 1
            began = time.perf_counter()
            expired = Rotator(acker).once().expired
            took_s = time.perf_counter() - began
            if expired:
                break
        if expired != count:
            raise RuntimeError(f"{expired} of {count} roots have expired")
    return took_s


def _share(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
