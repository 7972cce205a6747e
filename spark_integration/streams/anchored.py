"""A query over rows that another application handed over: each micro-batch is a job that acks them by their edges."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from redis_acker import Acker, Anchors
from redis_acker.store.ids import U64Array
from spark_integration.errors import error_of
from spark_integration.frames import checks
from spark_integration.frames.frame import TrackedFrame
from spark_integration.frames.track import track
from spark_integration.runs.deliveries import Received
from spark_integration.runs.keeping import Keeper
from spark_integration.runs.summary import Summary
from spark_integration.streams.counters import StreamCounters
from spark_integration.streams.deaths import alone_with
from spark_integration.streams.parts import run_in_parts
from spark_integration.streams.running import TrackedQuery
from spark_integration.workers import map_in_workers


@dataclass(frozen=True)
class AnchoredPlan:
    """What track_stream(anchors=) was told, and what is done with each micro-batch."""

    frame: DataFrame
    acker: Acker
    name: str
    anchors: str
    stable_source: bool
    """Whether a micro-batch has the same rows when it is read again."""
    options: dict[str, Any]
    """Of track()."""
    run: Callable[[TrackedFrame], Summary] = field(repr=False, default=lambda frame: frame.sink(lambda batch: None))

    is_fused: bool = True
    """Whether tasks keep the books."""

    def tracked(self, frame: DataFrame) -> TrackedFrame:
        options = {"progress": False, "stable_source": True, **self.options}
        return track(frame, acker=self.acker, name=self.name, anchors=self.anchors, **options)

    def query(self) -> AnchoredQuery:
        return AnchoredQuery(self)


class AnchoredQuery(TrackedQuery):
    """It keeps no books of its own: what was acked is known by its edges, so a micro-batch that Spark brings again does
    only what was not done. What fails comes again from the spout of its message."""

    def __init__(self, plan: AnchoredPlan) -> None:
        super().__init__(plan.acker, plan.name)
        self._plan = plan
        self._done = self._failed = 0
        self._keeps = False
        """Whether the messages of a micro-batch are kept alive."""

    def start(self, checkpoint: str, trigger: dict[str, Any], *, takes_over: bool) -> AnchoredQuery:
        self._start(self._plan.frame, checkpoint, trigger)
        self._started()
        return self

    def __enter__(self) -> AnchoredQuery:
        return self

    @property
    def counters(self) -> StreamCounters:
        """Of rows, not messages."""
        return StreamCounters(self._batches, self._messages, self._done, self._failed, 0, 0, 0, None, None)

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        begin_s = time.monotonic()
        plan, rows = self._plan, 0
        batch = checks.check_frame(batch, stable_source=plan.stable_source)
        with ExitStack() as while_in_parts:

            def run(some: DataFrame, part: str) -> Summary:
                if part and not self._keeps:
                    while_in_parts.enter_context(self._keeping(batch))
                return plan.run(plan.tracked(some))

            for found in run_in_parts(batch, plan.anchors, run, self._give_up):
                rows += found.tracked
                self._done, self._failed = self._done + found.completed, self._failed + found.failed
        self._count_batch(batch_id, rows, begin_s)

    @contextmanager
    def _keeping(self, batch: DataFrame) -> Iterator[None]:
        """Keeps the messages of a micro-batch alive. Workers do that for the rows that they are at; those of other
        parts wait, for as long as it takes to find what kills a worker."""
        roots = roots_in(batch, self._plan.anchors)
        self._acker.extend(roots)
        self._keeps = True
        try:
            with Keeper(self._acker) as keeper, keeper.keeping(roots):
                yield
        finally:
            self._keeps = False

    def _give_up(self, rows: DataFrame, part: str, death: str) -> None:
        """Fails the messages of a row that its worker died of; their spouts bring them again."""
        [anchors, *_] = rows.toArrow().column(self._plan.anchors).to_pylist()
        self._acker.fail(list(Anchors.from_bytes(anchors)), component=self._name, error=alone_with(death))
        self._failed += 1

    def _look(self) -> None:
        """There is nothing to look for: final events go to the spouts of the messages."""


def roots_in(frame: DataFrame, anchors: str) -> U64Array:
    """The roots of all rows. Workers read them out of the anchors, so that the driver gets 8 bytes for each message and
    Arrow batch, and not the anchors of all rows."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            roots = np.unique(Received.of(batch.column(0), anchors).roots)
            yield pa.RecordBatch.from_arrays([pa.array(roots.view(np.int64))], names=["root"])

    try:
        found = map_in_workers(frame.select(f"`{anchors}`"), read, "root long", name="roots").toArrow()
    except Exception as error:
        raise error_of(error, "the micro-batch") from error
    return np.unique(found.column(0).to_numpy().view(np.uint64))
