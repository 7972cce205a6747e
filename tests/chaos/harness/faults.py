"""Things that go wrong. Each takes as long as it lasts, and leaves the world as it found it, but for what was lost."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from time import sleep

import redis

from tests.chaos.harness.world import World
from tests.servers import Cluster, Server
from tests.slots import Mover
from tests.waiting import wait_until

Fault = Callable[[World], None]


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
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGSTOP)
        sleep(world.rng.uniform(0.2, 1.5))
        os.kill(process.pid, signal.SIGCONT)


def write_junk(world: World) -> None:
    """Another program writes into the keys of the namespace."""
    shard, spout = world.rng.randrange(4), world.acker.known_spouts()
    for number in spout.values():
        for kind in ("completions", "failures"):
            world.acker.shards.ask(shard, "XADD", world.acker.shards.keys[shard].stream(kind, number), "*", "x", "y")
    world.acker.shards.ask(shard, "HSET", world.acker.shards.keys[shard].heads(0), os.urandom(8), os.urandom(12))


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
    with world.client(server) as client:
        wait_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", 30)


def move_slot(world: World) -> None:
    """A shard moves to another node while calls for it come in."""
    mover = Mover(Cluster(world.servers), world.acker.shards.keys[world.rng.randrange(4)].meta)
    mover.begin()
    for _ in mover.move_keys():
        pass
    mover.end()
    mover.close()
