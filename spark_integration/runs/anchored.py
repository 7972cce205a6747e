"""Jobs over deliveries whose tasks keep the books: each portion of rows is asked about, worked on, and acked or failed
straight from the worker. The driver knows none of them.

Nothing is done because the input ended, and nothing depends on how the rows are partitioned: what was acked is known by
its edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from redis_acker import Acker
from redis_acker.errors import StoreLost
from redis_acker.store.ids import U64Array
from redis_acker.store.packed import TRACE_BYTES
from spark_integration.runs.books import FailedPlaces
from spark_integration.runs.deliveries import Deliveries, Leaving, Received
from spark_integration.runs.failing import NotedRows
from spark_integration.runs.keeping import STORE_AWAY, Keeper, Patience, collecting_rarely
from spark_integration.runs.life import RunLife, RunOptions
from spark_integration.runs.portions import Pace, PortionInput
from spark_integration.runs.summary import FailedMessage, Summary
from spark_integration.runs.tally import MOST_LISTED
from spark_integration.runs.tracking import COLUMN, MOST_TRACED, Places, TracedDelivery
from spark_integration.workers import StoreAddress

COUNTS_SCHEMA = "rows long, before long, failed long, traced array<binary>"
"""What a task gives back: Counts."""

Work = Callable[[pa.RecordBatch, Leaving], FailedPlaces]
"""Takes rows through everything, and returns those that failed. What leaves for another application gets its anchors
from Leaving."""

SOON_S = 1.0
"""After so much work, or a quarter of the timeout, roots are extended for the first time. Not at once: a row that ends
its worker whenever it is delivered must time out in the end."""


@dataclass
class Counts:
    """What became of the rows of a task, or of all tasks."""

    rows: int = 0
    before: int = 0
    """Rows that had been done before, were here twice, or are of trees that are over."""
    failed: int = 0
    traced: list[bytes] = field(default_factory=list)
    """Of the first deliveries that came with a trace, each once: their first root and the context."""

    def add(self, other: Counts) -> None:
        self.rows += other.rows
        self.before += other.before
        self.failed += other.failed
        self.traced = list(dict.fromkeys([*self.traced, *other.traced]))[:MOST_TRACED]


@dataclass(frozen=True)
class AnchoredBooks:
    """What the workers of a run are told."""

    store: StoreAddress
    run: str
    column: str
    """Of the anchors, for people."""
    job: int
    """Its number, of which edges are made."""
    hands_over: bool


class AnchoredTask:
    """One task attempt at one partition."""

    def __init__(self, books: AnchoredBooks, work: Work) -> None:
        self._books, self._work = books, work
        self._acker: Acker = books.store.acker()
        self._counts = Counts()
        self._keeper = Keeper(self._acker, first_s=SOON_S)
        self._pace = Pace(books.run)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Counts:
        source = PortionInput(batches)
        with collecting_rarely(), self._keeper:
            while rows := source.rows_at_hand():
                batch = source.peek(self._pace.portion_rows(rows))
                self._do(batch)
                source.drop(batch.num_rows)
        return self._counts

    def _do(self, batch: pa.RecordBatch) -> None:
        received = Received.of(batch.column(COLUMN).field("anchors"), self._books.column)
        to_do, half_acked = self._ask(received)
        if self._books.hands_over:  # what was sent on is not known here: their work is repeated
            to_do, half_acked = np.union1d(to_do, half_acked), half_acked[:0]
        if len(to_do) < len(received):
            batch = batch.take(pa.array(to_do))
        mine = received.take(to_do)
        leaving = Leaving(mine, self._books.job)
        failed = self._work_on(batch, mine, leaving) if len(mine) else {}
        failed_rows = np.unique(np.array([place for some in failed.values() for place in some], dtype=np.int64))
        self._end(mine, failed, failed_rows, leaving.sent, received.take(half_acked))
        traced = [mine.roots_of(row)[0].to_bytes(8, "big") + trace for row, trace in mine.traces.items()]
        self._counts.add(Counts(len(received), len(received) - len(to_do), len(failed_rows), traced))

    def _ask(self, received: Received) -> tuple[Places, Places]:
        """Which rows are to be worked on, and which only to be acked."""
        patience = Patience()
        while True:
            try:
                return received.to_do(self._acker.edge_states(received.roots, received.edges))
            except STORE_AWAY as error:
                patience.wait(error)

    def _work_on(self, batch: pa.RecordBatch, mine: Received, leaving: Leaving) -> FailedPlaces:
        with self._keeper.keeping(mine.roots), self._pace.measuring(len(mine)):
            return self._work(batch, leaving)

    def _end(
        self, mine: Received, failed: FailedPlaces, failed_rows: Places, sent: U64Array, half_acked: Received
    ) -> None:
        """Fails and acks, as often as it takes until the store has answered: doing it again changes nothing."""
        is_done = ~np.isin(mine.rows_of_anchors(), failed_rows)
        patience = Patience()
        while True:
            try:
                for cause, places in failed.items():
                    rows = np.unique(places)
                    roots = mine.roots[mine.anchors_of(rows)]
                    self._acker.fail(roots, component=cause.component, error=cause.error, fatal=cause.fatal)
                    first = mine.roots[mine.starts[rows]]
                    NotedRows(self._acker, self._books.run).add(np.unique(first.view(np.int64)), cause)
                self._acker.ack_edges(mine.roots[is_done], mine.edges[is_done], (mine.edges ^ sent)[is_done])
                self._acker.ack_edges(half_acked.roots, half_acked.edges)
                return
            except STORE_AWAY as error:
                patience.wait(error)


class AnchoredRun(RunLife):
    """A context manager. What was acked stays so if the job fails; the rest is left as it is, for the next delivery."""

    def __init__(self, deliveries: Deliveries, options: RunOptions) -> None:
        super().__init__(deliveries.frame.sparkSession, options, [_WatchedRun(self)])
        self.job = deliveries.job
        self._column = deliveries.anchors
        self._noted = NotedRows(options.acker, self.name)

    def _take(self) -> None:
        self._noted.begin()

    def _end(self, error: BaseException | None) -> None:
        self._watch.stop()
        self._noted.delete()

    def _unfinished(self) -> str:
        return "the rows in progress; acked rows stay acked, and the others can be delivered again"

    def books(self, job: int, *, hands_over: bool) -> AnchoredBooks:
        return AnchoredBooks(StoreAddress.of(self._acker), self.name, self._column, job, hands_over)

    def summary(self, counts: Counts) -> Summary:
        """With the roots that failed here. Their messages are replayed by the spouts they come from."""
        self._watch.check()
        try:
            noted = self._noted.read()
        except StoreLost:  # the roots have failed all the same; only the list of them is gone
            noted = {}
        failed = [
            FailedMessage(None, self.job, root, 1, "failed", cause.component, cause.error, dead=False)
            for cause, roots in noted.items()
            for root in roots.view(np.uint64).tolist()
        ]
        done = counts.rows - counts.failed
        return Summary((self.job,), counts.rows, done, 0, tuple(failed[:MOST_LISTED]), self._seconds, counts.before)


def traced_deliveries(counts: Counts) -> list[TracedDelivery]:
    found = []
    for number, one in enumerate(counts.traced):  # of one message several, if they came from different spans
        root = int.from_bytes(one[:-TRACE_BYTES], "big")
        found.append(TracedDelivery(number, [root], one[-TRACE_BYTES:]))
    return found


@dataclass(frozen=True)
class _WatchedRun:
    """The run as its watch sees it."""

    run: AnchoredRun

    @property
    def name(self) -> str:
        return self.run.job

    def renew_lease(self) -> None:
        pass  # the spouts are other programs'

    def extend(self) -> None:
        self.run._noted.keep()  # workers keep their roots alive themselves

    def counts(self) -> tuple[int, int]:
        return 0, len(self.run._noted)
