"""Where a load runs: the servers, the way to them, and the processes, which are started again when they die."""

from __future__ import annotations

import random
import secrets
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import redis

from redis_acker import Acker
from tests.chaos.harness import operator, pipeline, roots, spark, stream, tasks
from tests.chaos.workers import Process, QuickProcess
from tests.proxy import CuttingProxy
from tests.sentinels import SentinelSet, start_sentinel
from tests.servers import Cluster, Server, start_cluster, start_server, start_server_with_clock
from tests.spark.processes import end_all
from tests.waiting import wait_until

Task = Callable[[], Process]

BEGIN_WITHIN_S = 120

AOF = ("--appendonly", "yes", "--appendfsync", "always")
CUT_AOF = ("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")


class World:
    """One scenario under way. `stop()` ends and removes everything."""

    def __init__(self, store: str, load: str, seed: int, messages: int, bug: str = "", *, per_s: float = inf) -> None:
        """per_s: roots or messages that a sender makes in a second."""
        self.rng, self.namespace = random.Random(seed), f"chaos{secrets.token_hex(3)}"
        self.folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self.store, self.load = store, load
        self.servers = self._start_servers(store)
        self.sentinels: SentinelSet | None = None
        self.proxy: CuttingProxy | None = None
        self.url = self._url()
        self.acker: Acker = roots.open_acker(self.direct_url, self.namespace)
        if load == "roots":
            self._tasks = self._roots_tasks(seed, bug, per_s)
        elif load == "operator":
            self._tasks = self._operator_tasks(seed, bug)
        elif load == "spark":
            self._tasks = self._spark_tasks(bug, messages)
        elif load == "stream":
            self._tasks = self._stream_tasks(bug, per_s)
        elif load == "tasks":
            self._tasks = self._task_tasks(seed, bug, messages)
        else:
            self._tasks = self._pipeline_tasks(seed, bug, messages)
        self.processes = {name: start() for name, start in self._tasks.items()}

    # -- servers ---------------------------------------------------------------------------------------------------

    def _start_servers(self, store: str) -> list[Server]:
        self._sets: list[Cluster | SentinelSet | Server] = []
        if store == "cluster":
            cluster = start_cluster("redis-7.0", 3, *AOF)
            self._sets.append(cluster)
            return cluster.nodes
        if store == "sentinel":
            found = start_sentinel()
            self._sets.append(found)
            return [found.master, found.replica]
        kind, _, way = store.partition(" ")
        if way == "with a clock":
            server = start_server_with_clock(kind, *AOF)
        else:
            server = start_server(kind, *(CUT_AOF if way == "everysec" else AOF))
        self._sets.append(server)
        return [server]

    def _url(self) -> str:
        [first] = self._sets
        if isinstance(first, Cluster):
            self.direct_url = first.url
        elif isinstance(first, SentinelSet):
            self.sentinels = first
            hosts = ",".join(f"{host}:{port}" for host, port in first.addresses)
            self.direct_url = f"redis+sentinel://{hosts}/{first.service}"
        else:
            self.direct_url = first.url
            self.proxy = CuttingProxy("127.0.0.1", first.port)
            return self.proxy.url
        return self.direct_url

    def client(self, server: Server) -> redis.Redis:
        return server.client(socket_timeout=5)

    # -- processes -------------------------------------------------------------------------------------------------

    def _roots_tasks(self, seed: int, bug: str, per_s: float) -> dict[str, Task]:
        place = self.url, self.namespace, self.folder
        senders = {f"sender {n}": partial(Process, roots.send, *place, seed + n, bug, per_s) for n in range(2)}
        return {**senders, **self._store_tasks(bug)}

    def _operator_tasks(self, seed: int, bug: str) -> dict[str, Task]:
        place = self.url, self.namespace, self.folder
        return {
            "sender": partial(QuickProcess, operator.send, *place, seed, bug),
            **{f"operator {n}": partial(QuickProcess, operator.operate, *place, f"file{n}", bug) for n in range(2)},
            "rotator": partial(Process, roots.rotate, *place, bug),
        }

    def _spark_tasks(self, bug: str, messages: int) -> dict[str, Task]:
        (self.folder / "count").write_text(str(messages // 4))  # Spark needs most of the time to start
        place = self.url, self.namespace, self.folder
        return {
            "spark": partial(Process, spark.run, *place, bug),
            "rotator": partial(Process, roots.rotate, *place, bug),
        }

    def _stream_tasks(self, bug: str, per_s: float) -> dict[str, Task]:
        place = self.url, self.namespace, self.folder
        return {
            "sender": partial(QuickProcess, stream.feed, self.url, self.folder, bug, per_s),
            "spark": partial(Process, stream.run, *place, bug),
            "rotator": partial(Process, roots.rotate, *place, bug),
        }

    def _task_tasks(self, seed: int, bug: str, messages: int) -> dict[str, Task]:
        tasks.start_run(self.acker, self.folder, messages)
        start = partial(QuickProcess, tasks.work, self.url, self.namespace, self.folder, seed, bug)
        return {**{f"worker {n}": start for n in range(6)}, **self._store_tasks(bug)}

    def _store_tasks(self, bug: str) -> dict[str, Task]:
        place = self.url, self.namespace, self.folder
        return {
            **{f"rotator {n}": partial(Process, roots.rotate, *place, bug) for n in range(2)},
            # Both under one name, by mistake.
            **{f"reader {n}": partial(Process, roots.read_events, *place, bug) for n in range(2)},
        }

    def _pipeline_tasks(self, seed: int, bug: str, messages: int) -> dict[str, Task]:
        pipeline.write_messages(self.folder, messages)
        run = partial(Process, pipeline.run, self.url, self.namespace, self.folder, seed, bug)
        # The second waits for the lease of the first, so that there is a successor at once.
        return {"pipeline 1": run, "pipeline 2": run} if self.load == "two pipelines" else {"pipeline 1": run}

    def revive(self) -> None:
        """Starts again what was killed. A pipeline or a worker that has ended is done."""
        for name, process in self.processes.items():
            if not process.is_alive() and not self.has_ended(name):
                self.processes[name] = self._tasks[name]()

    def has_ended(self, name: str) -> bool:
        return name.startswith(("pipeline", "worker", "spark")) and self.processes[name].exit_code() == 0

    def wait_for_begin(self) -> None:
        """Until the load is at work: on a busy machine its processes need longer to start than some faults last."""
        noted = [self.folder / name for name in ("sent", "told")]
        wait_until(lambda: any(file.exists() and file.stat().st_size for file in noted), BEGIN_WITHIN_S)

    def is_done(self) -> bool:
        """Whether pipelines or workers have done all; a load of roots ends when it is told to."""
        at_work = [name for name in self.processes if not name.startswith(("rotator", "reader"))]
        return all(map(self.has_ended, at_work)) and bool(at_work)

    def stop(self) -> None:
        for process in self.processes.values():
            process.stop()
        end_all(self.namespace)  # what is left of Spark, whose driver was killed
        self.acker.close()
        if self.proxy:
            self.proxy.stop()
        for one in self._sets:
            one.stop()
        shutil.rmtree(self.folder)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.stop()
