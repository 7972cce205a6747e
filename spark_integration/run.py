"""One run of a tracked job: roots for all messages, kept alive while Spark works, and their final events."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

from pyspark.sql import SparkSession

from redis_acker import Acker, Rotator
from redis_acker.errors import ServerUnavailable
from redis_acker.retries import RetryPolicy
from spark_integration.deliveries import Deliveries, OpenDeliveries
from spark_integration.errors import BadFrame
from spark_integration.open_source import OpenSource
from spark_integration.parts import AnySource, Part
from spark_integration.source import Source
from spark_integration.summary import Summary
from spark_integration.tracking import Cause, Failed, FailedRows, Inline, Keys, Tracking, Value, fail_keys
from spark_integration.watch import Watch
from spark_integration.workers import StoreAddress

MAX_INLINE = 4_000_000
"""Most messages of a run over Spark Connect, whose closures carry 8 bytes for each."""

log = logging.getLogger(__name__)


class Run:
    """A context manager: inside of it all messages are pending; at its end each of them is completed or failed."""

    def __init__(
        self,
        spark: SparkSession,
        acker: Acker,
        sources: Sequence[AnySource],
        *,
        retries: RetryPolicy,
        max_failures: int | None,
        progress: bool | None,
    ) -> None:
        self._spark, self._acker = spark, acker
        self.name = os.urandom(8).hex()
        self.sources: list[Part] = [self._part(source, retries) for source in sources]
        self._groups = FailedRows(acker, self.name)
        self.watch = Watch(spark, acker, self.sources, tag=self.name, max_failures=max_failures, progress=progress)

    def _part(self, source: AnySource, retries: RetryPolicy) -> Part:
        if isinstance(source, Deliveries):
            return OpenDeliveries(source, self._acker, self.name)
        assert isinstance(source, Source)
        return OpenSource(source, self._acker, retries)

    @property
    def tracked(self) -> int:
        return sum(len(source) for source in self.sources)

    def __enter__(self) -> Run:
        self._start_s = time.monotonic()
        self._rotator = Rotator(self._acker).start()
        try:
            for source in self.sources:
                source.take()
            self.watch.start()
            for source in self.sources:
                source.init()
            self.tracking = Tracking(StoreAddress.of(self._acker), self.name, self._tables())
        except BaseException as error:
            self._end(error)
            raise
        self._spark.addTag(self.name)
        return self

    def _tables(self) -> Value:
        tables = [source.table() for source in self.sources]
        if hasattr(self._spark, "_sc"):
            broadcast: Value = self._spark.sparkContext.broadcast(tables)
            return broadcast
        if self.tracked > MAX_INLINE:
            raise BadFrame(
                f"A run over Spark Connect tracks at most {MAX_INLINE:,} messages, and these are {self.tracked:,}: "
                "split the frame, or run the job with a Spark session that is no remote one."
            )
        return Inline(tables)

    def fail(self, step: str, failed: Failed) -> None:
        """Fails what is behind some keys, from the driver."""
        fail_keys(self._acker, self.name, self.tracking.tables.value, step, failed)

    def failed_groups(self, *, but: set[int]) -> dict[tuple[str, Cause], set[int]]:
        """The groups of rows that failed behind an aggregation, without some."""
        rest = {cause: set(keys) - but for cause, keys in self._groups.read().items()}
        return {cause: keys for cause, keys in rest.items() if keys}

    def complete(self) -> Summary:
        """Acks what has not failed."""
        self.watch.check()
        for source in self.sources:
            source.complete(f"run {self.name}")
        return self._settle()

    def exchange(self, keys: Keys, deltas: Keys) -> None:
        """Acks everything in exchange for the edges of rows that another application is to ack."""
        self.watch.check()
        for source in self.sources:
            source.exchange(keys, deltas, f"run {self.name}")

    def _settle(self) -> Summary:
        failures = tuple(failure for source in self.sources for failure in source.settle())
        spouts = tuple(source.source.spout for source in self.sources)
        seconds = time.monotonic() - self._start_s
        return Summary(spouts, self.tracked, self.tracked - len(failures), failures, seconds)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._spark.removeTag(self.name)
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """Lets go of everything. Nothing of a job that failed counts as done."""
        self.watch.stop()
        try:
            if error is not None:
                for source in self.sources:
                    source.abort(f"{type(error).__name__}: {error}")
                self._settle()
            self._groups.forget()
            for source in self.sources:
                source.close()
        except ServerUnavailable as trouble:
            if error is None:
                raise
            log.error("The messages of a run that failed time out, because the store cannot be told: %s", trouble)
        finally:
            self._rotator.stop()
