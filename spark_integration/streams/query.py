"""A tracked query while it runs: its micro-batches are runs, and a thread beside them brings failed messages again."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from redis_acker import Acker
from redis_acker.driver.pausing import Switch
from redis_acker.errors import AckerError
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.message_ids import MessageId
from spark_integration.errors import JobFailed
from spark_integration.frames import checks
from spark_integration.frames.frame import TrackedFrame
from spark_integration.frames.track import track
from spark_integration.runs.arrivals import Arrivals, Counting
from spark_integration.runs.in_stream import RunInStream
from spark_integration.runs.kept_rows import unpack_rows
from spark_integration.runs.summary import Summary
from spark_integration.streams.counters import Latencies, StreamCounters
from spark_integration.streams.deaths import alone_with, death_in
from spark_integration.streams.parts import run_in_parts
from spark_integration.streams.query_record import QueryRecord
from spark_integration.streams.retries import Retries
from spark_integration.streams.running import LOOK_EVERY_S, TrackedQuery
from spark_integration.streams.spout import Source, StreamSpout
from spark_integration.streams.strays import StrayRows
from spark_integration.streams.suspects import BatchProgress, Suspects
from spark_integration.streams.tally import StreamTally
from spark_integration.streams.written import WrittenPart, WrittenParts, written_before

MOST_IN_VAIN = 3
"""Deaths of workers in a micro-batch that no message can have caused: with one more the query fails."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamPlan:
    """What track_stream() was told, and what is done with each micro-batch."""

    frame: DataFrame
    acker: Acker
    spout: str
    message_id: str
    retries: RetryPolicy
    source: Source | None
    max_waiting: int
    stable_source: bool
    """Whether a micro-batch has the same rows when it is read again."""
    options: dict[str, Any]
    """Of track()."""
    arrival: str | None = None
    """The column that says when a message has arrived."""
    hands_over: bool = False
    """Whether rows leave for another application, which completes the messages."""
    run: Callable[[TrackedFrame], Summary] = field(repr=False, default=lambda frame: frame.sink(lambda batch: None))
    is_fused: bool = True
    """Whether tasks keep the books."""

    @property
    def schema(self) -> pa.Schema:
        """Of rows as they come in."""
        return to_arrow_schema(self.frame.schema, timezone="UTC")

    def id_in(self, payload: list[Any]) -> MessageId | None:
        """The message id in a row that was kept."""
        [found] = unpack_rows([payload], self.schema).column(self.message_id).to_pylist()
        return found  # type: ignore[no-any-return]

    def arrivals(self) -> Arrivals | None:
        if self.arrival is None:
            return None
        return Arrivals(self.arrival, self.frame.sparkSession.sparkContext.accumulator(Counter(), Counting()))

    def tracked(self, frame: DataFrame, in_stream: RunInStream) -> TrackedFrame:
        """Rows, which are the same when they are read again, as a tracked frame whose run is one of the query."""
        tracked = track(
            frame,
            acker=self.acker,
            spout=self.spout,
            message_id=self.message_id,
            retries=self.retries,
            progress=False,
            stable_source=True,
            **self.options,
        )
        return tracked.in_stream(in_stream)

    def query(self) -> MessageQuery:
        return MessageQuery(self)


class MessageQuery(TrackedQuery):
    """A query over messages of its own. It holds the spout until it ends."""

    def __init__(self, plan: StreamPlan) -> None:
        super().__init__(plan.acker, plan.spout)
        self._plan = plan
        self._spout = StreamSpout(
            plan.acker, plan.spout, plan.retries, plan.id_in, plan.source, hands_over=plan.hands_over
        )
        self._began_ms: int | None = None
        self._tally = StreamTally(
            plan.acker, plan.spout, self._spout, lambda: self._began_ms, from_init=plan.hands_over
        )
        self._arrivals = plan.arrivals()
        self._told = {"tells_ids": plan.source is not None, "arrivals": self._arrivals}
        self._retries = Retries(plan, self._spout, self._tally, self._told)
        self._suspects = Suspects(plan, self._spout, self._tally)
        self._strays = StrayRows(plan.acker, self._spout, plan.id_in)
        lag = getattr(plan.source, "lag", None)
        self._switch = Switch(plan.acker, plan.spout, plan.acker.clock.time_ms, lag=lag)

    def start(self, checkpoint: str, trigger: dict[str, Any], *, takes_over: bool) -> MessageQuery:
        self._spout.hold()
        try:
            self._record = QueryRecord(self._plan.acker, self._plan.spout, self._plan.message_id)
            self._record.check(self._plan.frame.sparkSession, checkpoint, takes_over=takes_over)
            if takes_over:
                self._spout.start_batches_over()
            self._spout.written = written_before(self._acker, self._spout)
            self._start(self._plan.frame, checkpoint, trigger)
            self._record.began(str(self.query.id))
        except BaseException:
            self._is_stopped = True
            self._is_started.set()
            if hasattr(self, "query"):
                self.query.stop()
            self._spout.let_go()
            raise
        self._started()
        return self

    def __enter__(self) -> MessageQuery:
        return self

    def stop(self) -> None:
        self._is_stopped = True
        self._retries.cancel()
        super().stop()

    @property
    def counters(self) -> StreamCounters:
        spout, tally = self._spout, self._tally
        latencies = Latencies(self._arrivals.counts.value) if self._arrivals else tally.latencies
        return StreamCounters(
            self._batches,
            self._messages,
            tally.completed,
            spout.failed,
            spout.retried,
            spout.waiting,
            spout.dead,
            latencies.percentile(0.5),
            latencies.percentile(0.99),
        )

    # -- micro-batches -------------------------------------------------------------------------------------------

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        self._spout.renew_lease()
        progress = BatchProgress(self._plan)
        in_stream = self._record.in_stream(self._spout, self._tally, progress, batch_id, **self._told)
        # Tasks that keep the books write no notes: an earlier start of the query may have, with other steps.
        are_there = not (self._plan.is_fused and self._batches)
        written = WrittenParts(self._acker, self._spout, in_stream.input, are_there=are_there)
        if self._record.is_finished(batch_id):
            log.info("Micro-batch %d of spout %s was finished before.", batch_id, self._plan.spout)
            self._clean_up(in_stream, written)
            return
        self._wait_for_room()
        if self._is_stopped:
            raise JobFailed("The query was stopped before its micro-batch began.")
        begin_s, self._began_ms = time.monotonic(), self._acker.shards.time_ms(0)
        self._spout.begin_batch()
        if not self._plan.is_fused:
            batch = self._strays.rest_of(batch, self._plan.message_id)
        batch = checks.check_frame(batch, stable_source=self._plan.stable_source)
        tracked = self._plan.tracked(batch, in_stream)
        if self._plan.is_fused and not written:
            rows = self._run_tracked(tracked, progress)
        else:
            rows = self._run_parts(batch, in_stream, written)
        self._tally.read()  # what has failed in a part that was written before needs its row too
        self._retries.find_rows(tracked)
        self._strays.bury()
        self._spout.renew_lease()
        self._record.finish(batch_id)
        self._clean_up(in_stream, written)
        self._began_ms = None
        self._count_batch(batch_id, rows, begin_s)

    def _run_tracked(self, tracked: TrackedFrame, progress: BatchProgress) -> int:
        """A message that kills its worker fails the job: then it goes on without what was in work there. If nothing
        was, no message did it, and it goes on a few times."""
        in_vain = 0
        while True:
            try:
                return self._plan.run(tracked).tracked
            except AckerError as error:
                if self._is_stopped:
                    raise
                if not self._suspects.set_aside(tracked, progress, error):
                    in_vain += 1
                    if not death_in(error) or in_vain > MOST_IN_VAIN:
                        raise
                    log.warning(
                        "A worker of spout %s died, but not of a message: its micro-batch goes on.", self._plan.spout
                    )
            self._wait_for_room()

    def _run_parts(self, batch: DataFrame, in_stream: RunInStream, written: WrittenParts) -> int:
        """A job in which no task keeps the books is done as a whole or not at all. What was written by a query that
        died is not written again."""
        plan = self._plan

        def run(rows: DataFrame, part: str) -> int:
            done = written.finish(part)
            if done is None:
                tracked = plan.tracked(rows, replace(in_stream, written=WrittenPart(written, part)))
                done = plan.run(tracked).tracked
                written.done(part, done)
            return done

        def give_up(rows: DataFrame, part: str, death: str) -> None:
            table = rows.toArrow()
            [message_id] = set(table.column(plan.message_id).to_pylist())
            self._spout.note_attempt(message_id, alone_with(death), table.slice(0, 1))
            written.done(part, 0)

        return sum(run_in_parts(batch, plan.message_id, run, give_up, is_split=written.is_split))

    def _clean_up(self, in_stream: RunInStream, written: WrittenParts) -> None:
        """Forgets how far the run of a micro-batch has come that is noted as finished."""
        if not self._plan.hands_over:
            self._acker.shards.failed_rows(self._spout.rows_name).delete()
        in_stream.progress.drop()
        written.drop()
        self._spout.end_batch(self._tally)

    def _wait_for_room(self) -> None:
        """Waits while the spout is paused; and, as backpressure, while too many messages wait: a sink that refuses
        everything must not fill the store."""
        said = False
        while not (self._stop.is_set() or self._is_stopped):
            is_full = self._spout.to_try > self._plan.max_waiting
            if not (is_full or self._switch.is_paused()):
                return
            if is_full and not said:
                log.warning(
                    "Spout %s: %s failed messages wait for another attempt, and the next micro-batch waits for them.",
                    self._plan.spout,
                    f"{self._spout.to_try:,}",
                )
                said = True
            self._stop.wait(LOOK_EVERY_S)

    # -- beside them ---------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Renews the lease, reads final events, and brings messages whose pause is over."""
        self._spout.renew_lease()
        self._tally.read()
        self._spout.accept_requests()
        if not self._switch.is_paused():
            self._retries.run_due()

    def _leave(self) -> None:
        super()._leave()
        self._switch.forget_lag()
        try:
            self._tally.read()
        except AckerError as error:
            log.warning("Final events of spout %s are left for the next start: %s", self._plan.spout, error)
        if waiting := self._spout.waiting:
            log.warning(
                "%s messages of spout %s wait for their next attempt: the next start brings them.",
                f"{waiting:,}",
                self._plan.spout,
            )
        self._spout.let_go()
