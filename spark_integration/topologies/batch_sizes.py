"""How many tuples BatchBolts are given at once: fewer for a while after a batch failed, as in a LocalRunner."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from redis_acker.topology.task import SMALLER, SMALLER_FOR_S

SMALLER_FOR = 2
"""Micro-batches with smaller batches, however long they take: what comes back while one runs is in the next."""


@dataclass
class _Limit:
    most: int
    until_s: float
    left: int = SMALLER_FOR


class BatchSizes:
    """They change between micro-batches alone: a task that runs again must give its bolt the same batches again."""

    def __init__(self) -> None:
        self._limits: dict[str, _Limit] = {}

    def begin(self) -> dict[str, int]:
        """A micro-batch begins. How many tuples each bolt is given at once that is to get fewer than its batch_size."""
        now_s = time.monotonic()
        self._limits = {name: one for name, one in self._limits.items() if one.left > 0 or now_s < one.until_s}
        for one in self._limits.values():
            one.left -= 1
        return {name: one.most for name, one in self._limits.items()}

    def note_failed(self, batches: Iterable[tuple[str, int]]) -> None:
        """What failed in a micro-batch: the bolts, and how many tuples each had at once. The largest batch counts."""
        for component, size in sorted(batches):
            if size > 1:
                self._limits[component] = _Limit(max(1, size // SMALLER), time.monotonic() + SMALLER_FOR_S)
