"""What a tracked query has counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from spark_integration.runs.arrivals import STEP, bucket_of


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
    """Attempts after the first that were begun."""
    waiting: int
    """Messages that wait for their next attempt now, those of earlier starts included."""
    dead: int
    """Messages that were given up."""
    p50_ms: float | None
    """Half of the messages that completed at their first attempt took no longer than this, from the begin of their
    micro-batch to their completion; None before the first. With track_stream(arrival=) half of all that were done, from
    their arrival."""
    p99_ms: float | None

    def __str__(self) -> str:
        latency = "" if self.p50_ms is None else f"; p50 {self.p50_ms:,.0f} ms, p99 {self.p99_ms:,.0f} ms"
        return (
            f"{self.completed:,} completed, {self.failed:,} failed attempts, {self.retried:,} retried, "
            f"{self.waiting:,} waiting, {self.dead:,} dead{latency}"
        )


class Latencies:
    """A histogram of times, in buckets that grow by 5%."""

    def __init__(self, counts: Counter[int] | None = None) -> None:
        """counts: by bucket."""
        self._counts = Counter[int]() if counts is None else counts

    def add(self, ms: float, count: int) -> None:
        self._counts[bucket_of(ms)] += count

    def percentile(self, share: float) -> float | None:
        """The time within which this share of all is; None if there are none."""
        left = share * self._counts.total()
        for bucket, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return float(STEP**bucket)
        return None
