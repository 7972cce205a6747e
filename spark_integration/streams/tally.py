"""Counts the final events of a query, and how long its messages take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from redis_acker import Acker
from redis_acker.store.streams import Completion
from spark_integration.runs.summary import FailedMessage
from spark_integration.runs.tally import Tally
from spark_integration.streams.counters import Latencies
from spark_integration.streams.spout import StreamSpout


class StreamTally(Tally):
    """Counts over all runs of a query, and keeps nothing of single messages."""

    def __init__(
        self,
        acker: Acker,
        spout: str,
        run_spout: StreamSpout,
        began_ms: Callable[[], int | None],
        *,
        from_init: bool = False,
    ) -> None:
        """began_ms: when the micro-batch in work began. from_init: messages are completed after their micro-batch, so
        that their latency is taken from when they became pending."""
        super().__init__(acker, spout, run_spout)
        self._began_ms, self._from_init = began_ms, from_init
        self.latencies = Latencies()

    def reset(self) -> None:
        if not hasattr(self, "completed"):
            super().reset()

    def _count_completion(self, event: Completion) -> None:
        self.completed += len(event)
        if self._from_init:
            for age_ms, count in Counter(event.ages_ms).items():
                self.latencies.add(age_ms, count)
            return
        has_ids = any(item.packed_ids for item in event.items)
        first = len(event) - (sum(attempt > 1 for attempt in event.attempts) if has_ids else 0)
        began_ms = self._began_ms()
        if first and began_ms is not None:
            self.latencies.add(event.at_ms - began_ms, first)

    def _count(self, failure: FailedMessage) -> None:
        self.failed += 1
