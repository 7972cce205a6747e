"""What goes wrong inside tasks, and how often: a job names the points it passes, a test decides what happens there.

Faults can be pickled into a task. All that is shared between tasks and test is a directory, so that it holds across
processes, retries and kills.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pyspark import TaskContext

#: fail: the first task to come raises. copy: it waits for a copy of itself. hold: all wait for release().
Fault = Literal["fail", "copy", "hold"]

#: The points that the jobs of the scenarios pass in each task of their two steps, which a shuffle divides. A step is
#: done when its rows were handed on and its acks, if it sends any, were sent.
FIRST_DONE = "first done"
SECOND_BEGUN = "second begun"
SECOND_DONE = "second done"

#: A test that forgot to release its tasks ends with an error, not never.
LONGEST_WAIT_S = 60.0


class InjectedFault(RuntimeError):
    """Raised in a task that was told to fail."""


class Faults:
    """reached() is called in tasks, everything else by the test."""

    def __init__(self, directory: str, plan: Mapping[str, Fault]) -> None:
        self._directory, self._plan = Path(directory), dict(plan)

    def reached(self, point: str) -> None:
        """A task has come to a point. Counts it, and does what the plan says."""
        context = TaskContext.get()
        partition = -1 if context is None else context.partitionId()
        self._touch(f"{point}@{partition}@{secrets.token_hex(8)}")
        fault = self._plan.get(point)
        if fault == "hold":
            self._wait_for(f"{point} released")
        elif fault is not None:
            self._once(point, partition, fault)

    def _once(self, point: str, partition: int, fault: Fault) -> None:
        first = self._directory / f"{point} first"
        with contextlib.suppress(FileExistsError):
            # A link is there with its content or not at all, also for another process.
            draft = self._directory / f"{point} draft {secrets.token_hex(8)}"
            draft.write_text(str(partition))
            os.link(draft, first)
            if fault == "fail":
                raise InjectedFault(f"partition {partition} was told to fail at {point!r}")
            self._wait_for(f"{point} copied")
        if fault == "copy" and self.arrivals(point).count(int(first.read_text())) > 1:
            self._touch(f"{point} copied")

    def arrivals(self, point: str) -> list[int]:
        """The partitions whose tasks came to the point, once for each attempt."""
        return [int(path.name.split("@")[1]) for path in self._directory.glob(f"{point}@*")]

    def repeats(self, point: str) -> int:
        """Attempts that came to the point after another one of the same partition."""
        counts = Counter(self.arrivals(point))
        return sum(counts.values()) - len(counts)

    def release(self, point: str) -> None:
        """Tasks that are held at the point go on, and those that come later do not wait."""
        self._touch(f"{point} released")

    def _touch(self, name: str) -> None:
        (self._directory / name).touch()

    def _wait_for(self, name: str) -> None:
        deadline = time.monotonic() + LONGEST_WAIT_S
        while not (self._directory / name).exists():
            if time.monotonic() > deadline:
                raise InjectedFault(f"nothing came of {name!r} in {LONGEST_WAIT_S:g} s")
            time.sleep(0.02)
