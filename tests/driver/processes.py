"""Drivers in processes of their own, which can be killed and paused, and what is around them in real time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import redis

from redis_acker import Acker, Anchors, RetryPolicy, Rotator, SpoutDriver
from redis_acker.errors import SpoutTaken
from redis_acker.store.message_ids import MessageId
from tests.driver.faults import Points, WatchedRouter, WatchedSpout, watched_acker
from tests.driver.source import Disk, DurableSpout
from tests.driver.world import SPOUT
from tests.waiting import wait_until

LEASE_MS = 300
SETTINGS: dict[str, Any] = {"timeout_ms": 400, "block_size": 4}
POLICY = RetryPolicy(max_attempts=3, first_ms=20, jitter=0)
TAKEN = 3
"""Exit code of a driver whose spout was taken over."""


class FileDisk(Disk):
    """A disk that several processes see. What is settled is a line in a file."""

    def __init__(self, folder: Path, plans: Mapping[MessageId, str]) -> None:
        super().__init__(plans)
        self._path = folder / "settled"
        self._path.touch()
        self.reload()

    def reload(self) -> Disk:
        """Reads what other processes have settled, as far as they lived to write it."""
        self.settled = {}
        for line in self._path.read_text().splitlines():
            with contextlib.suppress(ValueError):  # the half line of one that was killed, or is about to write on
                self.settled.update([json.loads(line)])
        return self

    def settle(self, outcomes: Mapping[MessageId, str]) -> None:
        super().settle(outcomes)
        with self._path.open("a") as file:
            file.writelines(f"\n{json.dumps(outcome)}" for outcome in outcomes.items())


class QueueRouter:
    """Brings tuples into a list on the server, with the process that sent them."""

    def __init__(self, url: str, key: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._key = key

    def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
        return ["task"]

    def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        ((root, edge),) = anchors.items()
        self._client.rpush(self._key, json.dumps([os.getpid(), values[0], root, edge]))


def drive(url: str, namespace: str, folder: Path, plans: Mapping[MessageId, str], kill_at: int, until: str) -> None:
    """The life of a driver: until all is settled, or the file named by until is there. Killed at a point, if not 0."""
    points = Points(lambda number, where: number == kill_at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    disk, stop = FileDisk(folder, plans), threading.Event()
    driver = SpoutDriver(
        WatchedSpout(DurableSpout(disk), points),
        watched_acker(Acker(url, namespace=namespace, **SETTINGS), points),
        WatchedRouter(QueueRouter(url, f"{namespace}:queue"), points),
        name=SPOUT,
        retries=POLICY,
        wait_for_lease=True,
        lease_ms=LEASE_MS,
    )

    def stop_when_done() -> None:
        path = folder / until
        wait_until(lambda: path.exists() if until else (disk.is_done() and driver.is_idle()), 60)
        stop.set()

    threading.Thread(target=stop_when_done, daemon=True).start()
    try:
        driver.run(stop)
    except SpoutTaken:
        sys.exit(TAKEN)


class Surroundings:
    """The task, the rotator and the disk; start() starts a driver."""

    def __init__(self, url: str, namespace: str, folder: Path, plans: Mapping[MessageId, str]) -> None:
        self.disk = FileDisk(folder, plans)
        self.acker = Acker(url, namespace=namespace, **SETTINGS)
        self.seen: list[tuple[int, MessageId]] = []
        """Process and message of every tuple that has come."""
        self._arguments = (url, namespace, folder, dict(plans))
        self._client: Any = redis.Redis.from_url(url)
        self._queue = f"{namespace}:queue"
        self._rotator = Rotator(self.acker).start()

    def close(self) -> None:
        self._rotator.stop()
        self._client.delete(self._queue)
        self._client.close()
        self.acker.close()

    def start(self, *, kill_at: int = 0, until: str = "") -> ForkServerProcess:
        process = _context().Process(target=drive, args=(*self._arguments, kill_at, until))
        process.start()
        return process

    def work_until(self, predicate: Callable[[], Any]) -> None:
        def worked() -> Any:
            self.work()
            return predicate()

        wait_until(worked, 30, 0.002)

    def work(self) -> None:
        """The task works off its queue."""
        while (found := self._client.lpop(self._queue)) is not None:
            pid, message_id, root, edge = json.loads(found)
            self.seen.append((pid, message_id))
            plan = self.disk.plans[message_id]
            if plan == "fatal" or (plan == "fail once" and self.times_seen(message_id) == 1):
                self.acker.fail([root], component="task", fatal=plan == "fatal")
            else:
                self.acker.ack([root], [edge])

    def times_seen(self, message_id: MessageId) -> int:
        return sum(message_id == other for _, other in self.seen)


def _context() -> ForkServerContext:
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.driver.processes"])
    return context
