"""What other processes do in these tests. Functions of a module, because a new process imports them by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

from redis_acker import Acker, Rotator
from redis_acker.store import rotator

LONGEST_S = 60


class Process:
    """A process that shares nothing with this one. Ends with stop(), at the latest."""

    def __init__(self, task: Callable[..., None], *args: Any) -> None:
        self._process: BaseProcess = self._context().Process(target=task, args=args, daemon=True)
        self._process.start()

    def _context(self) -> SpawnContext | ForkServerContext:
        return get_context("spawn")

    def join(self) -> None:
        """Waits for its end; a process that does not come to one has failed."""
        self._process.join(LONGEST_S)
        assert self._process.exitcode == 0

    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.exitcode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._process.join()

    def stop(self) -> None:
        if self.is_alive():
            self.kill()


class QuickProcess(Process):
    """Starts from a process that has imported its module before."""

    def __init__(self, task: Callable[..., None], *args: Any) -> None:
        self._context().set_forkserver_preload([task.__module__])
        super().__init__(task, *args)

    def _context(self) -> ForkServerContext:
        return get_context("forkserver")


def barrier(parties: int) -> Any:
    """Lets that many processes begin at once."""
    return get_context("spawn").Barrier(parties)


def rotate_until_empty(url: str, namespace: str, now_ms: int, start: Any = None) -> None:
    """Rotates and drains until no root is pending, with a clock that stands still."""
    with Acker(url, namespace=namespace, create=False, clock=lambda: now_ms) as acker:
        if start:
            start.wait()
        while acker.pending_count() > 0:
            Rotator(acker).once()


def drain_until_empty(url: str, namespace: str, now_ms: int, start: Any = None) -> None:
    """Drains what others have rotated, until no root is pending."""
    with Acker(url, namespace=namespace, create=False, clock=lambda: now_ms) as acker:
        if start:
            start.wait()
        while acker.pending_count() > 0:
            for shard in range(acker.settings.shards):
                Rotator(acker).drain(shard)


def drain_slowly(url: str, namespace: str, now_ms: int) -> None:
    """Drains one block at a time, so that there are many points at which it can be killed."""
    rotator.DRAIN_COST = 1
    with Acker(url, namespace=namespace, create=False, clock=lambda: now_ms) as acker:
        while acker.pending_count() > 0:
            Rotator(acker).once()


def hold_outcomes(url: str, namespace: str, spout: str, consumer: str) -> None:
    """Reads what is there as a consumer, and holds it until killed."""
    with Acker(url, namespace=namespace, create=False) as acker:
        reader = acker.completions(spout, consumer=consumer)
        while reader.read():
            pass
        signal.pause()
