"""What a tracked query has counted, beside the progress that Spark reports of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from spark_integration.streams.counters import StreamCounters

OWN = "redis_acker"
"""Under which our counters are in the progress of a query."""

OnProgress = Callable[[dict[str, Any]], object]

log = logging.getLogger(__name__)


def with_counters(progress: StreamingQueryProgress | None, counters: StreamCounters) -> dict[str, Any]:
    return {**(json.loads(progress.json) if progress else {}), OWN: asdict(counters)}


class ProgressListener(StreamingQueryListener):
    """Hands the events of one query on, each with what was counted by then."""

    def __init__(
        self,
        spark: SparkSession,
        query: StreamingQuery,
        counters: Callable[[], StreamCounters],
        on_progress: OnProgress,
    ) -> None:
        self._spark, self._query = spark, str(query.id)
        self._counters, self._on_progress = counters, on_progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._tell(str(event.progress.id), json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Messages may be tried again meanwhile."""
        self._tell(str(event.id), {"id": str(event.id), "runId": str(event.runId), "timestamp": event.timestamp})

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        told = {"id": str(event.id), "runId": str(event.runId), "exception": event.exception}
        self._tell(str(event.id), told)
        if str(event.id) == self._query:
            self._spark.streams.removeListener(self)

    def _tell(self, query: str, progress: dict[str, Any]) -> None:
        if query == self._query:
            try:
                self._on_progress({**progress, OWN: asdict(self._counters())})
            except Exception:
                log.exception("The on_progress function of query %s raised an error.", query)
