"""The tuples of a task: those in its queue, and those that its bolt was given and has not finished."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from redis_acker.clock import Clock, Signal
from redis_acker.components.tuples import Tuple

HELD_LIMIT = 10_000
"""Most roots of unfinished tuples that a task remembers, to name the bolt when they time out."""

CLEAN_AFTER = 500
"""Tuples that are added before finished ones are looked for."""


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
        self.loose = 0
        """How many tuples are in no tree, if others are: if none is, their number is len()."""

    def __len__(self) -> int:
        return len(self._tuples)

    def put(self, tup: Tuple, *, first: bool = False) -> None:
        """first: it overtakes all that wait."""
        tup.since_s = self._now_s()
        if self._is_tracked and not tup.anchors.edges:
            self.count_loose(1)
        if first:
            self._tuples.appendleft(tup)
        else:
            self._tuples.append(tup)
        if self._is_waited_for:  # looked at after the append, as the other side looks after it says that it waits
            self._is_waited_for = False  # one wake is enough for all that come until the other side runs
            self._wake.set()

    def count_loose(self, change: int) -> None:
        """Whoever takes a tuple that is in no tree calls it with -1."""
        if self._is_tracked:
            with self._counting:
                self.loose += change

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


class HeldTuples:
    """Tuples that a bolt will finish later, or has forgotten. One thread adds, others ask."""

    def __init__(self) -> None:
        self._by_root: dict[int, list[Tuple]] = {}
        self._size, self._clean_at = 0, CLEAN_AFTER

    def add(self, tup: Tuple) -> None:
        for root in tup.anchors:
            self._by_root.setdefault(root, []).append(tup)
        self._size += 1
        if self._size >= self._clean_at:
            self._clean()

    def all(self) -> Iterator[Tuple]:
        """Those that are not finished; one with several roots comes several times."""
        # list() copies in one step, while the other thread may add.
        return (tup for tuples in list(self._by_root.values()) for tup in list(tuples) if not tup.outcome)

    def _clean(self) -> None:
        """Drops what has been finished since, and the oldest of the rest if there are too many."""
        held = {root: [tup for tup in tuples if not tup.outcome] for root, tuples in self._by_root.items()}
        held_roots = [root for root, tuples in held.items() if tuples]
        self._by_root = {root: held[root] for root in held_roots[-HELD_LIMIT:]}
        self._size = sum(map(len, self._by_root.values()))
        self._clean_at = 2 * self._size + CLEAN_AFTER
