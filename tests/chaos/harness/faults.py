"""Things that go wrong. Each takes as long as it lasts, and leaves the world as it found it, but for what was lost."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from time import sleep

import redis

from tests.chaos.harness import stream
from tests.chaos.harness.journal import read
from tests.chaos.harness.roots import TIMEOUT_MS
from tests.chaos.harness.world import World
from tests.servers import Cluster, Server
from tests.slots import Mover
from tests.spark.processes import command_line, descendants
from tests.waiting import wait_until

Fault = Callable[[World], None]

WORKER = "pyspark.daemon"
"""In the command line of a Python worker."""


def _some_server(world: World) -> Server:
    return world.rng.choice(world.servers)


def kill_server(world: World) -> None:
    server = _some_server(world)
    server.kill()
    sleep(world.rng.uniform(0.05, 0.8))
    server.restart()


def stop_server(world: World) -> None:
    server = _some_server(world)
    server.pause()
    sleep(world.rng.uniform(0.2, 1.5))
    server.resume()


def cut_aof(world: World) -> None:
    """The machine goes down: the end of the file, which had not reached the disk, is gone."""
    [server] = world.servers
    server.kill()
    [file] = sorted(Path(server.directory).glob("appendonlydir/*.incr.aof")) or [
        Path(server.directory, "appendonly.aof")
    ]
    size = file.stat().st_size
    os.truncate(file, max(0, size - world.rng.randrange(1, 200_000)))
    server.restart()


def step_clock(world: World) -> None:
    """The clock of the server is set, forward or back, by more or less than a timeout."""
    seconds = world.rng.uniform(-3, 3) * TIMEOUT_MS / 1000
    for server in world.servers:
        Path(server.directory, "clock").write_text(f"{seconds:+.3f}")


def kill_connections(world: World) -> None:
    for server in world.servers:
        with world.client(server) as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def forget_scripts(world: World) -> None:
    for server in world.servers:
        with world.client(server) as client:
            client.script_flush()


def rewrite_aof(world: World) -> None:
    for server in world.servers:
        with world.client(server) as client, contextlib.suppress(redis.ResponseError):  # one is under way
            client.bgrewriteaof()


def fill_memory(world: World) -> None:
    server = _some_server(world)
    with world.client(server) as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] - 100_000)
        sleep(world.rng.uniform(0.3, 1.0))
        client.config_set("maxmemory", 0)


def cut_replies(world: World) -> None:
    assert world.proxy
    world.proxy.cut_randomly(0.3, world.rng.randrange(1 << 30), command=b"EVALSHA")
    sleep(world.rng.uniform(0.3, 1.5))
    world.proxy.cut_randomly(0, 0)


def halve_replies(world: World) -> None:
    assert world.proxy
    world.proxy.halves = True
    cut_replies(world)
    world.proxy.halves = False


def delay_replies(world: World) -> None:
    assert world.proxy
    world.proxy.delay_s = world.rng.uniform(0.01, 0.1)
    sleep(world.rng.uniform(0.3, 1.0))
    world.proxy.delay_s = 0.0


def cut_connections(world: World) -> None:
    assert world.proxy
    world.proxy.cut_all_connections()


def kill_process(world: World) -> None:
    """SIGKILL of a sender, reader, rotator or driver."""
    world.processes[world.rng.choice(sorted(world.processes))].stop()
    world.revive()


def kill_rotator(world: World) -> None:
    world.processes[world.rng.choice([name for name in world.processes if name.startswith("rotator")])].stop()
    world.revive()


def stop_process(world: World) -> None:
    """SIGSTOP, for longer than its lease and its timeouts may be."""
    process = world.processes[world.rng.choice(sorted(world.processes))]
    _signal(process.pid, signal.SIGSTOP)
    sleep(world.rng.uniform(0.2, 1.5))
    _signal(process.pid, signal.SIGCONT)


def kill_spark_driver(world: World) -> None:
    """Once it has brought about something; it needs some seconds to start."""
    _wait_for_work(world)
    world.processes["spark"].stop()


def kill_executor(world: World) -> None:
    _wait_for_work(world)
    _kill_of_spark(world, "CoarseGrainedExecutorBackend")


def kill_python_worker(world: World) -> None:
    _wait_for_work(world)
    kill_some_worker(world)


def kill_some_worker(world: World) -> None:
    """A Python worker, or what they are forked from, whether it is at work or not."""
    _kill_of_spark(world, WORKER)


def restart_query(world: World) -> None:
    """A streaming query is stopped, and started again in the same process."""
    (world.folder / stream.RESTART).touch()


def _kill_of_spark(world: World, what: str) -> None:
    if found := [pid for pid in descendants(world.processes["spark"].pid) if _is_running(pid, what)]:
        _signal(world.rng.choice(found), signal.SIGKILL)


def _is_running(pid: int, what: str) -> bool:
    return any(what in word for word in command_line(pid))


def _wait_for_work(world: World) -> None:
    """Until the sink is at work again, or all is done."""
    count = sum(1 for what, *_ in read(world.folder / "told") if what == "sunk")
    with contextlib.suppress(AssertionError):
        wait_until(
            lambda: world.is_done() or sum(1 for what, *_ in read(world.folder / "told") if what == "sunk") > count, 60
        )


def leave_zombies(world: World) -> None:
    """All workers sleep, for so long that what they have in their hands is taken over by those that come for some of
    them, which are killed. The others wake up while these work."""
    workers = [name for name in world.processes if name.startswith("worker") and not world.has_ended(name)]
    killed = workers[: len(workers) // 2]
    for name in workers:
        _signal(world.processes[name].pid, signal.SIGSTOP)
    sleep(TIMEOUT_MS / 2000 + 0.1)
    for name in killed:
        world.processes[name].stop()
    killed_s = time.time()
    world.revive()
    with contextlib.suppress(AssertionError):
        wait_until(lambda: any(what == "init" and at_s > killed_s for what, at_s, _ in read(world.folder / "told")), 10)
    for name in workers:
        _signal(world.processes[name].pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


JUNK_FIELDS = (
    *("counters", "finished:0", "heads:0", "ids:0", "quarantine", "sequences", "spout_states", "spouts"),
    *("tracked_streams", "vals:0"),
)
JUNK_NUMBERS = {"meta": ("history", "tick", "turned_ms"), "counters": ("components", "early_bytes", "newest_ms")}
JUNK_OF_A_SPOUT = ("dead", "progress", "requests", "retries", "withdrawn")


def write_junk(world: World) -> None:
    """Another program writes into the keys of the namespace, of every kind."""
    shard = world.rng.randrange(4)
    keys, ask = world.acker.shards.keys[shard], world.acker.shards.ask
    for number in world.acker.known_spouts().values():
        for kind in ("completions", "failures"):
            ask(shard, "XADD", f"{keys.prefix}{kind}:{number}", "*", "x", "y")
        for name in JUNK_OF_A_SPOUT:
            ask(shard, "HSET", f"{keys.prefix}{name}:{number}", os.urandom(8), os.urandom(12))
        ask(shard, "ZADD", f"{keys.prefix}replayed:{number}", "1e300", os.urandom(8))
        ask(shard, "SET", f"{keys.prefix}began:{number}", os.urandom(8))
    for name in JUNK_FIELDS:
        ask(shard, "HSET", keys.prefix + name, os.urandom(8), os.urandom(12))
    for name, fields in JUNK_NUMBERS.items():
        for field in fields:
            ask(shard, "HSET", keys.prefix + name, field, os.urandom(12))


def promote_replica(world: World) -> None:
    """The primary is lost; its replica, which may lack the last writes, takes its place. After that there is none."""
    assert world.sentinels
    if len(world.servers) == 1:
        kill_connections(world)
        return
    world.servers.remove(world.sentinels.master)
    world.sentinels.kill_master()
    world.sentinels.wait_for_failover()


def restart_node(world: World) -> None:
    """A node of the cluster is lost for longer than the others wait for it, and comes back with its data."""
    server = _some_server(world)
    server.kill()
    sleep(2.5)
    server.restart()
    _wait_for_cluster(world)


def move_slot(world: World) -> None:
    """A shard moves to another node while calls for it come in."""
    _wait_for_cluster(world)
    mover = Mover(Cluster(world.servers), world.acker.shards.keys[world.rng.randrange(4)].meta)
    mover.begin()
    is_moved = False
    while not is_moved:
        try:
            for _ in mover.move_keys():
                pass
            is_moved = True
        except redis.ResponseError as error:
            if "CLUSTERDOWN" not in str(error):
                raise
            _wait_for_cluster(world)  # on a busy machine nodes take each other for dead
    mover.end()
    mover.close()


def _wait_for_cluster(world: World) -> None:
    """Until all nodes see all others."""
    for server in world.servers:
        with world.client(server) as client:
            wait_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", 60)
