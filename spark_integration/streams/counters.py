"""What a tracked query has counted."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

_STEP = 1.05
"""Latencies are known to within 5%."""


@dataclass(frozen=True)
class StreamCounters:
    """A tracked query at one moment. Counts are since it was started."""

    batches: int
    """Micro-batches that are finished."""
    messages: int
    """Rows in them."""
    completed: int
    failed: int
    """Attempts that failed."""
    retried: int
    """Attempts after the first."""
    waiting: int
    """Messages that wait for their next attempt now, those of earlier starts included."""
    dead: int
    """Messages that were given up."""
    p50_ms: float | None
    """Half of the messages that completed at their first attempt took no longer than this, from the begin of their
    micro-batch to their completion; None before the first."""
    p99_ms: float | None

    def __str__(self) -> str:
        latency = "" if self.p50_ms is None else f"; p50 {self.p50_ms:,.0f} ms, p99 {self.p99_ms:,.0f} ms"
        return (
            f"{self.completed:,} completed, {self.failed:,} failed attempts, {self.retried:,} retried, "
            f"{self.waiting:,} waiting, {self.dead:,} dead{latency}"
        )


class Latencies:
    """A histogram of times, in buckets that grow by 5%."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, ms: float, count: int) -> None:
        self._counts[math.ceil(math.log(max(ms, 1.0), _STEP))] += count

    def percentile(self, share: float) -> float | None:
        """The time within which this share of all is; None if there are none."""
        left = share * self._counts.total()
        for bucket, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return float(_STEP**bucket)
        return None
