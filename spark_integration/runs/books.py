"""The books of a run, kept in its tasks: each portion of a partition's rows is begun, made pending, worked on, and
acked or failed straight from the worker.

Nothing is done because the input ended: a worker sees a normal end too when Spark fails on the other side.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from redis_acker import Acker, Token
from redis_acker.retries.book import payload_of
from redis_acker.store.hashes import StoredHash
from redis_acker.store.ids import U64Array
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import BEGUN, PENDING, SUNK, DoneKeys, Place, Portion, field_of
from redis_acker.store.streams import Cause
from spark_integration.errors import BadFrame, OtherRows
from spark_integration.runs.done_keys import DoneBefore
from spark_integration.runs.keeping import STORE_AWAY, Keeper, Patience, collecting_rarely
from spark_integration.runs.kept_rows import bounded, pack_rows, put_rows
from spark_integration.runs.portions import (
    Pace,
    PortionInput,
    check_portion,
    edges_of,
    field_in,
    keys_of,
    message_ids_of,
    other_rows,
    sum_after,
    token_of,
)
from spark_integration.runs.spout import TAKEN_OVER
from spark_integration.runs.strays import Strays, strays_of
from spark_integration.runs.tracking import COLUMN, Keys
from spark_integration.workers import StoreAddress

FailedPlaces = dict[Cause, list[int]]
"""Places of rows in their portion, by the cause for which they failed."""


@dataclass(frozen=True)
class Books:
    """What the workers of a run are told. The tracking column of its rows is the key of the message; or a struct, with
    its id if no other column holds that, and whether the row goes on (keep) unless all do."""

    store: StoreAddress
    run: str
    spout: int
    message_id: str
    """The column that holds it."""
    pass_number: int
    max_attempts: int
    known_keys: Keys = field(repr=False)
    """Keys of messages that have failed or died before, ascending."""
    failed_attempts: list[int] = field(repr=False)
    """How many attempts at each of them have failed."""
    keeps_keys: bool = False
    """Whether the keys of messages that are done are kept, to continue on another number of cores."""
    done_before: int = 0
    """Messages are left out whose keys were kept under a block sequence below this; 0: there are none."""
    part: str = ""
    """Of a stream that has two runs at once, the name of the second."""
    pace: str = ""
    """Under which a worker remembers how long a row takes; empty: that of the run."""
    rows: str = ""
    """In a stream: under which name the rows of messages are kept that fail, and of those that cannot be tracked."""
    waiting_keys: Keys = field(repr=False, default_factory=lambda: np.zeros(0, dtype=np.int64))
    """In a stream: keys of messages that wait for another attempt: a row with one is set aside. Ascending."""
    keeps_rows: bool = True
    """Whether rows are kept, at least those of messages that are given up."""
    tells_ids: bool = False
    """Whether all completions say which messages they are of."""
    trace: bytes = b""
    """The context of the run's span, which the first rows carry on that leave for another application; empty: none."""

    def attempts_of(self, keys: Keys) -> tuple[int | list[int], bool]:
        """The attempt that each message is at, and whether any has failed or died before."""
        if not len(self.known_keys):
            return 1, False
        at = np.minimum(np.searchsorted(self.known_keys, keys), len(self.known_keys) - 1)
        is_known = self.known_keys[at] == keys
        if not is_known.any():
            return 1, False
        attempts: list[int] = np.where(is_known, np.array(self.failed_attempts)[at] + 1, 1).tolist()
        return attempts, True

    def init(
        self, acker: Acker, portion: Portion, roots: U64Array, edges: U64Array, *, keys: Keys, ids: pa.Array
    ) -> None:
        """Makes the roots of a portion pending."""
        if ids.null_count:
            raise BadFrame(
                f"{ids.null_count} of {len(ids):,} rows that were read together have no message id: fill the column, "
                "or leave such rows out before track()."
            )
        attempts, is_known = self.attempts_of(keys)
        # The driver has to know which messages are complete, if it knows them as failed, or will.
        echo = self.tells_ids or is_known or len(portion.left) > 0
        acker.init(
            roots,
            edges,
            message_ids=message_ids_of(ids),
            attempts=attempts,
            echo_ids=echo,
            until_ms=portion.until_ms,
        )


class TaskBooks:
    """The books of one task attempt at one partition."""

    def __init__(self, books: Books, partition: int, work: Callable[[pa.RecordBatch], FailedPlaces]) -> None:
        """work: takes the rows of a portion through everything, and returns those that failed."""
        self._books, self._partition, self._work = books, partition, work
        self._acker: Acker = books.store.acker()
        self._progress = RunProgress(self._acker, books.spout, books.run, part=books.part)
        self._place = Place(field_of(books.pass_number, partition), 0, 0)
        self._keeper = Keeper(self._acker)
        self._pace = Pace(books.pace or books.run)

    def run(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Works on all rows that are not done. Returns how many there are."""
        books = self._books
        done = DoneBefore(self._progress, books.done_before)
        strays = self._strays(self._acker.shards.failed_rows(strays_of(books.rows)))
        if books.rows:
            batches = strays.with_own_ids(batches)
        if books.done_before:
            batches = done.rest_of(batches)
        if books.rows:
            batches = strays.of_new_messages(batches)
        source = PortionInput(batches)
        with collecting_rarely(), self._keeper:
            while rows := source.rows_at_hand():
                self._place = self._next(source, self._pace.portion_rows(rows))
        patience = Patience()
        while True:
            try:
                self._checked(self._progress.begin(self._place, 0, self._place.sum))
                return self._place.rows + done.left_out + strays.left_out
            except STORE_AWAY as error:
                patience.wait(error)

    def _strays(self, notes: StoredHash) -> Strays:
        return Strays(notes, self._books.message_id, self._books.waiting_keys)

    def _next(self, source: PortionInput, rows: int) -> Place:
        """Does the next portion, or skips what is done. Returns the place after it.

        After an outage it begins again, since the portion may have new roots by then. The work itself is not repeated.
        """
        patience = Patience()
        failed: FailedPlaces | None = None
        while True:
            try:
                batch = source.peek(rows)
                portion = self._checked(self._progress.begin(self._place, rows, sum_after(self._place, batch)))
                if portion.state == "done":
                    return self._pass_over(source, portion)
                if len(portion.left):
                    self._acker.fail(portion.left, component=TAKEN_OVER, error="its portion has other roots by now")
                if portion.rows != rows:  # another task attempt has cut it so
                    rows, failed, batch = portion.rows, None, source.peek(portion.rows)
                end = Place(self._place.partition, self._place.rows + batch.num_rows, sum_after(self._place, batch))
                if (batch.num_rows, end.sum) != (rows, portion.sum):
                    raise self._other_rows()
                keys, roots = keys_of(batch), self._progress.roots_of(portion.first, rows)
                if portion.stage < SUNK:
                    if not self._make_pending(portion, batch, keys, roots):
                        continue
                    if failed is None or not self._is_worked_on(roots):
                        failed = self._work_on(portion, batch, roots)
                    self._fail(failed, batch, keys, roots)
                    if not self._reach_sunk(portion, keys, failed):
                        continue
                if not self._ack(roots, keys, without=failed_rows(failed or {})) and portion.state != "late":
                    self._init(portion, batch, keys, roots)  # adopts them
                source.drop(rows)
                return end
            except STORE_AWAY as error:
                patience.wait(error)

    def _checked(self, portion: Portion) -> Portion:
        return check_portion(portion, self._partition, self._place.rows)

    def _other_rows(self) -> OtherRows:
        return other_rows(self._partition, self._place.rows)

    def _pass_over(self, source: PortionInput, done: Portion) -> Place:
        """Skips rows that are done, after checking that they are the same rows."""
        place = self._place
        while place.rows < done.rows and (at_hand := source.rows_at_hand()):
            batch = source.peek(min(at_hand, done.rows - place.rows))
            place = Place(place.partition, place.rows + batch.num_rows, sum_after(place, batch))
            source.drop(batch.num_rows)
        if (place.rows, place.sum) != (done.rows, done.sum):
            raise self._other_rows()
        return place

    # -- the stages of a portion ---------------------------------------------------------------------------------

    def _make_pending(self, portion: Portion, batch: pa.RecordBatch, keys: Keys, roots: U64Array) -> bool:
        """False if the portion has been given new roots meanwhile."""
        if portion.stage == BEGUN:
            self._init(portion, batch, keys, roots)
        else:
            self._acker.extend(roots)
        return self._progress.reach(self._place, portion, PENDING) == "kept"

    def _is_worked_on(self, roots: U64Array) -> bool:
        """Whether what was done under other roots counts for these, so that it is not repeated."""
        return True

    def _reach_sunk(self, portion: Portion, keys: Keys, failed: FailedPlaces) -> bool:
        """False if the portion has been given new roots meanwhile, or another attempt has ended it."""
        count = len(failed_rows(failed))
        kept = DoneKeys(portion.first, count, keys) if self._books.keeps_keys else None
        return self._progress.reach(self._place, portion, SUNK, count, kept=kept) == "kept"

    def _init(self, portion: Portion, batch: pa.RecordBatch, keys: Keys, roots: U64Array) -> None:
        self._books.init(self._acker, portion, roots, edges_of(keys), keys=keys, ids=self._ids_in(batch))

    def _ids_in(self, batch: pa.RecordBatch) -> pa.Array:
        found = field_in(batch, "id")
        return batch.column(self._books.message_id) if found is None else found

    def _work_on(self, portion: Portion, batch: pa.RecordBatch, roots: U64Array) -> FailedPlaces:
        touch = partial(self._progress.reach, self._place, portion, PENDING)
        with self._keeper.keeping(roots, touch), self._pace.measuring(batch.num_rows):
            return self._work(batch)

    def _fail(self, failed: FailedPlaces, batch: pa.RecordBatch, keys: Keys, roots: U64Array) -> None:
        for cause, places in failed.items():
            self._note_payloads(cause, places, batch, keys)
            self._acker.fail(roots[np.unique(places)], component=cause.component, error=cause.error, fatal=cause.fatal)

    def _note_payloads(self, cause: Cause, places: list[int], batch: pa.RecordBatch, keys: Keys) -> None:
        """Keeps the rows of messages that are given up, for their dead letters. In a stream those of all that fail."""
        if not self._books.keeps_rows:
            return
        if self._books.rows:
            self._keep_rows(places, batch)
            return
        attempts, _ = self._books.attempts_of(keys[places])
        each = [attempts] * len(places) if isinstance(attempts, int) else attempts
        last = [
            place
            for place, attempt in zip(places, each, strict=True)
            if cause.fatal or attempt >= self._books.max_attempts
        ]
        if last:
            rows = batch.drop_columns([COLUMN]).take(pa.array(last)).to_pylist()
            texts = [json.dumps(payload_of(row.values())) for row in rows]
            put_rows(self._acker, self._books.run, self._ids_in(batch).take(pa.array(last)), texts)

    def _keep_rows(self, places: Iterable[int], batch: pa.RecordBatch) -> None:
        """Keeps rows for another attempt at their messages."""
        which = pa.array(places)
        texts = list(map(bounded, pack_rows(batch.drop_columns([COLUMN]).take(which))))
        put_rows(self._acker, self._books.rows, self._ids_in(batch).take(which), texts)

    def _ack(self, roots: U64Array, keys: Keys, *, without: set[int]) -> bool:
        """False if the store kept ack vals for roots that it does not know: it has lost their init."""
        edges = edges_of(keys)
        if without:
            failed = list(without)
            roots, edges = np.delete(roots, failed), np.delete(edges, failed)
        acks = self._acker.ack(roots, edges, token=self._token())
        # A second delivery is noticed only where the first has not completed its roots: it was kept for an init.
        return acks.applied == acks.completed and not acks.duplicates

    def _token(self) -> Token:
        return token_of(self._books.run, self._place.partition, self._place.rows)


def failed_rows(failed: FailedPlaces) -> set[int]:
    """The places of all rows that failed."""
    return {place for places in failed.values() for place in places}
