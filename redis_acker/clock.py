"""The time by which rotators, drivers and runners work: each asks a clock, waits by it, and starts its threads with it.

There is one in production, SYSTEM_CLOCK; redis_acker.testing has one whose time a test lets pass.

May import: nothing.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol


class Signal(threading.Event):
    """An event that also wakes those who wait for something else."""

    def __init__(self) -> None:
        super().__init__()
        self.wakers: list[Callable[[], object]] = []
        """Called when it is set."""

    def set(self) -> None:
        super().set()
        for wake in self.wakers:
            wake()


class Clock(Protocol):
    """Tells the time, and lets threads wait for it."""

    def time_ms(self) -> int:
        """Ms since 1970."""

    def monotonic_s(self) -> float:
        """A time that is never set back, from any point on."""

    def uptime_s(self) -> float:
        """The same, and it keeps counting while the machine sleeps, where the system has such a clock."""

    def wait_for(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Waits until the event is set or the time is over; None: for ever. Returns whether it is set."""

    def poll(self, event: threading.Event, pause_s: float, within_s: float = math.inf) -> bool:
        """Pauses before the next look at something that does not say when it changes. Returns whether the event is set,
        which ends the pause.

        within_s: how long nothing is due, if that is known. The system's clock looks again long before; where time is
        simulated, no more than this passes, however short the pause."""

    def thread(self, name: str, target: Callable[[], object]) -> threading.Thread:
        """A thread that waits by this clock. It is not started yet."""

    def join(self, thread: threading.Thread, timeout_s: float | None) -> None:
        """Waits until such a thread has ended, or the time is over; None: for ever."""


class SystemClock:
    """The clock of the machine."""

    monotonic_s = staticmethod(time.monotonic)
    uptime_s = staticmethod(partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)))

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait_for(self, event: threading.Event, timeout_s: float | None) -> bool:
        return event.wait(timeout_s)

    def poll(self, event: threading.Event, pause_s: float, within_s: float = math.inf) -> bool:
        return event.wait(pause_s)

    def thread(self, name: str, target: Callable[[], object]) -> threading.Thread:
        return threading.Thread(target=target, name=name, daemon=True)

    def join(self, thread: threading.Thread, timeout_s: float | None) -> None:
        thread.join(timeout_s)


SYSTEM_CLOCK: Clock = SystemClock()
