"""The queue of a task."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from redis_acker.clock import Clock, Signal
from redis_acker.components.tuples import Tuple


class TaskQueue:
    """Tuples that wait for a task. Any thread puts, one takes."""

    def __init__(self, clock: Clock, *, is_tracked: bool) -> None:
        """is_tracked=False: none of the tuples is in a tree."""
        self._tuples: deque[Tuple] = deque()
        self.take = self._tuples.popleft
        """The next tuple. Raises IndexError if there is none."""
        self._wake = Signal()
        self._now_s, self._wait_for = clock.monotonic_s, clock.wait_for
        self._is_waited_for = False
        self._is_tracked = is_tracked
        self._counting = threading.Lock()
        self._loose = 0

    @property
    def untracked(self) -> int:
        """How many tuples are in no tree."""
        return self._loose if self._is_tracked else len(self._tuples)

    def put(self, tup: Tuple) -> None:
        tup.since_s = self._now_s()
        if self._is_tracked and not tup.anchors.edges:
            self.count_loose(1)
        self._tuples.append(tup)
        if self._is_waited_for:  # looked at after the append, as the other side looks after it says that it waits
            self._wake.set()

    def count_loose(self, change: int) -> None:
        """Whoever takes a tuple that is in no tree calls it with -1."""
        if self._is_tracked:
            with self._counting:
                self._loose += change

    def wait(self, stop: threading.Event) -> None:
        """Waits for a tuple, or for wake()."""
        self._wake.clear()
        self._is_waited_for = True
        if not (self._tuples or stop.is_set()):
            self._wait_for(self._wake, None)
        self._is_waited_for = False

    def wake(self) -> None:
        self._wake.set()

    def snapshot(self) -> Iterator[Tuple]:
        return iter(self._tuples.copy())
