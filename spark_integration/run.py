"""One run of a tracked job: roots for all messages, kept alive while Spark works, and their final events."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

from pyspark.sql import SparkSession

from redis_acker import Acker, Rotator
from redis_acker.errors import AckerError
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
                source.read()
            self._check_size()
            for source in self.sources:
                source.init()
            self.tracking = Tracking(StoreAddress.of(self._acker), self.name, self._tables(), self._is_replay())
            self._spark.addTag(self.name)
        except BaseException as error:
            self._end(error)
            raise
        return self

    def _is_replay(self) -> bool:
        return any(isinstance(one.source, Source) and one.source.only is not None for one in self.sources)

    def _check_size(self) -> None:
        if not hasattr(self._spark, "_sc") and self.tracked > MAX_INLINE:
            raise BadFrame(
                f"A run over Spark Connect tracks at most {MAX_INLINE:,} messages, and these are {self.tracked:,}: "
                "split the frame, or run the job with a Spark session that is no remote one."
            )

    def _tables(self) -> Value:
        tables = [source.table() for source in self.sources]
        if not hasattr(self._spark, "_sc"):
            return Inline(tables)
        broadcast: Value = self._spark.sparkContext.broadcast(tables)
        return broadcast

    def forget_tables(self) -> None:
        """Frees what workers were sent. No frame of the run can be computed again."""
        if not isinstance(self.tracking.tables, Inline):
            self.tracking.tables.destroy()  # type: ignore[attr-defined]

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
        settled = [source.settle() for source in self.sources]
        return Summary(
            tuple(source.source.spout for source in self.sources),
            self.tracked,
            sum(completed for completed, _ in settled),
            tuple(failure for _, failed in settled for failure in failed),
            time.monotonic() - self._start_s,
        )

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._spark.removeTag(self.name)
        except Exception:
            log.warning("Spark is gone, and a run ends without it.")
        finally:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """Lets go of everything. Nothing of a job that failed counts as done."""
        try:
            # A run that has lost its spout leaves it to the one that has it now.
            mine = [source for source in self.sources if source.is_mine()]
            if error is not None:
                for source in mine:
                    source.abort(f"{type(error).__name__}: {error}")
                    source.settle()
            self._groups.forget()
            self.watch.stop()  # not before: it holds the spouts. Not later: it would take them again.
            for source in mine:
                source.close()
        except AckerError as trouble:
            if error is None:
                raise
            log.error("The messages of a run that failed time out, because the store cannot be told: %s", trouble)
        finally:
            self.watch.stop()
            self._rotator.stop()
