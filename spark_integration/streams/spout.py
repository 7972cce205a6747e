"""The spout of a tracked query: held over all micro-batches. What has failed waits with its row, or is given up."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from redis_acker import Acker
from redis_acker.errors import text_of
from redis_acker.retries.book import DeadLetter, FailedAttempt, Request, Retry, payload_of
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.hashes import StoredHash
from redis_acker.store.message_ids import MessageId
from redis_acker.store.progress import RunProgress
from spark_integration.errors import SourceUnavailable
from spark_integration.runs.in_stream import Spans
from spark_integration.runs.kept_rows import bounded, pack_rows
from spark_integration.runs.portions import own_edges
from spark_integration.runs.strays import AWAY, NO_ID, WAITS
from spark_integration.runs.summary import FailedMessage
from spark_integration.streams.waiting import WaitingSpout

COMPONENT = "track_stream"
"""What gives up messages that no step has seen."""

_SHOWN_DEAD = 5

log = logging.getLogger(__name__)


class Source(Protocol):
    """Where the messages of a stream come from, if it wants to know what became of them. If it has a method lag() too,
    which tells how many messages wait in it, that is asked every few seconds, for people to see."""

    def finish(self, message_ids: Sequence[MessageId]) -> None:
        """These messages are complete, or dead. Called at least once for each, after its final event is stored."""


@dataclass(frozen=True)
class Written:
    """Roots whose messages are written. A timeout of one of them is no attempt: nobody was there to ack it."""

    spans: Spans = field(default_factory=list)
    """Ascending."""
    failed: set[int] = field(default_factory=set)
    """Roots among them that have failed."""


class StreamSpout(WaitingSpout):
    """Held by a query while it runs, so its runs neither take it nor give it back. A message that fails keeps its row
    in the retry book until it is complete or dead."""

    def __init__(
        self,
        acker: Acker,
        name: str,
        policy: RetryPolicy,
        id_in: Callable[[list[Any]], MessageId | None],
        source: Source | None,
        *,
        hands_over: bool,
    ) -> None:
        """id_in: finds the message id in a row that was kept. hands_over: another application completes the messages.
        They may fail when their run is over, so workers keep the rows of all of them."""
        self.rows_name = f"stream {acker.spout_number(name)}"
        """Under which workers keep the rows of messages that fail."""
        super().__init__(acker, name, policy, lambda: self.rows_name, hands_over=hands_over)
        self._id_in, self._source = id_in, source
        self._dead_ids: set[MessageId] = set()
        self.written = Written()
        """By an earlier start of the query."""
        self.failed = self.dead = 0

    @property
    def written_parts(self) -> StoredHash:
        """Which parts of the micro-batch in work are written (written.py)."""
        return self._acker.shards.failed_rows(f"{self.rows_name}:written")

    # -- holding it ----------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Takes the spout for the query."""
        super().take_lease()
        self._retries = self._book.load(requests=False)  # these are accepted one by one
        if RunProgress(self._acker, self.number).stored_name():
            self._of_batch = set(self._retries)
        self._dead_ids = set(self.dead_ids())
        self.find_in_flight()

    def let_go(self) -> None:
        super().close()

    def take_lease(self) -> None:
        """A run of the query begins, and the query has the spout."""

    def close(self) -> None:
        """A run of the query ends, and the query keeps the spout."""

    # -- micro-batches -------------------------------------------------------------------------------------------

    def start_batches_over(self) -> None:
        """Nobody goes on with what another query had in work, or has written."""
        self.written_parts.delete()
        self.start_over(RunProgress(self._acker, self.number))
        self._of_batch = None

    # -- final events --------------------------------------------------------------------------------------------

    def note_failures(self, *, waiting: Iterable[tuple[int, int]] = ()) -> list[FailedMessage]:
        with self.lock:
            return super().note_failures(waiting=waiting)

    def known_before(self) -> dict[MessageId, int]:
        with self.lock:
            return {**dict.fromkeys(self._dead_ids, 0), **self.failed_before()}

    def completed(self, message_ids: Iterable[MessageId]) -> None:
        done = list(message_ids)
        self.forget(done)
        if self._hands_over:
            self._drop_rows(done)
        if dead := self._dead_ids.intersection(done):
            super().completed(dead)
            self._dead_ids -= dead
        self._tell(done)

    def _note(self, failed: list[tuple[FailedMessage, int]]) -> None:
        """Stores the attempts of failed messages with their rows, or their dead letters."""
        self._complete([one for one, _ in failed if self._is_written(one)])
        failed = [(one, at_ms) for one, at_ms in failed if not self._is_written(one)]
        attempts = {one.message_id: one.attempt for one, _ in failed if one.message_id is not None}
        self._in_flight.difference_update(attempts)
        if self._of_batch is not None:  # later attempts are those of retries
            self._of_batch.update(one for one, attempt in attempts.items() if attempt == 1)
        rows = self._kept_rows([one for one in attempts if self._retry_of(one).payload is None])
        noted: dict[MessageId, Retry] = {}
        letters: list[DeadLetter] = []
        for one, at_ms in failed:
            message_id = one.message_id
            assert message_id is not None
            row, is_lost = rows.get(message_id), False
            if isinstance(row, str):  # why it was not kept
                one, is_lost = replace(one, error=f"{one.error} ({row})"), True
            retry = noted[message_id] = self._add_attempt(message_id, one, at_ms)
            retry.payload = retry.payload if row is None or is_lost else row
            if one.dead or is_lost:
                letters.append(self._letter(message_id, retry, fatal=one.attempt < self._policy.max_attempts))
        self._book.note(noted)
        self._bury(letters)
        self._drop_rows(rows)
        self.failed += len(failed)

    def _is_written(self, one: FailedMessage) -> bool:
        is_written = self._is_in(one.root, self.written.spans) and one.root not in self.written.failed
        return is_written and one.reason == "timeout"

    def _complete(self, written: list[FailedMessage]) -> None:
        """Completes messages that are written, and whose roots have timed out: under new roots, at the same attempt."""
        if written:
            roots = self._acker.allocate(self._name, len(written))
            ids = [one.message_id for one in written if one.message_id is not None]
            attempts = [one.attempt for one in written]
            self._acker.init(roots, own_edges(roots), message_ids=ids, attempts=attempts, echo_ids=True)
            self._acker.ack(roots, own_edges(roots))

    # -- giving up -----------------------------------------------------------------------------------------------

    def give_up(self, message_id: MessageId, error: str, payload: Any = None) -> None:
        """Makes a dead letter of a message of which an attempt cannot even begin."""
        with self.lock:
            retry = self._retry_of(message_id)
            attempt = FailedAttempt(retry.attempt + 1, "failed", COMPONENT, error, self._acker.shards.time_ms(0))
            known = Retry([*retry.history, attempt], payload=retry.payload if payload is None else payload)
            self._bury([self._letter(message_id, known, fatal=True)])

    def note_attempt(self, message_id: MessageId, error: str, row: pa.Table | None = None) -> None:
        """Counts an attempt that failed together with its whole job. row: of a message that has not failed before."""
        with self.lock:
            if row is not None:
                self._put_row(message_id, bounded(pack_rows(row)[0]))
            attempt, now_ms = self._retry_of(message_id).attempt + 1, self._acker.shards.time_ms(0)
            is_dead = self._is_last(attempt)
            failed = FailedMessage(message_id, self._name, 0, attempt, "failed", COMPONENT, error, is_dead)
            self._note([(failed, now_ms)])

    def _letter(self, message_id: MessageId, retry: Retry, *, fatal: bool) -> DeadLetter:
        payload = retry.payload and payload_of(retry.payload)  # that of a suspect may be longer than a letter keeps
        return DeadLetter(message_id, self._name, list(retry.history), fatal, payload)

    def _bury(self, letters: list[DeadLetter]) -> None:
        self._book.bury(*letters)
        ids = [letter.message_id for letter in letters]
        self.forget(ids)
        self._dead_ids.update(ids)
        self._tell(ids)
        self.dead += len(ids)
        for letter in letters[:_SHOWN_DEAD]:
            last = letter.history[-1]
            where = f"spout {self._name} is dead after {last.attempt} attempts"
            log.error("Message %r of %s: %s", letter.message_id, where, last.error)
        if len(letters) > _SHOWN_DEAD:
            log.error("%d more messages of spout %s are dead.", len(letters) - _SHOWN_DEAD, self._name)

    def _tell(self, message_ids: list[MessageId]) -> None:
        if self._source and message_ids:
            try:
                self._source.finish(message_ids)
            except Exception as error:
                raise SourceUnavailable(
                    f"The source of spout {self._name!r} was told that {len(message_ids):,} messages are finished, and "
                    f"raised {text_of(error)}: it will be told again."
                ) from error

    # -- rows of what waits, and replays that others ask for -----------------------------------------------------

    def without_row(self) -> list[MessageId]:
        """Messages that wait, and whose rows are not known yet."""
        with self.lock:
            return [message_id for message_id, retry in self._retries.items() if retry.payload is None]

    def keep_rows(self, rows: Mapping[MessageId, str]) -> None:
        """Keeps rows of messages that wait, each as the JSON of its payload or of the reason why there is none."""
        with self.lock:
            for message_id, text in rows.items():
                payload = json.loads(text)
                if isinstance(payload, str):
                    self.give_up(message_id, payload)
                elif message_id in self._retries:
                    self._retries[message_id].payload = payload
            self._book.note({one: self._retries[one] for one in rows if one in self._retries})

    def accept_requests(self) -> None:
        """Takes in the replays that others ask for."""
        with self.lock:
            for request in self._book.requests():
                self._accept(request)

    def _accept(self, request: Request) -> None:
        message_id, retry = request.message_id, request.retry
        if str(message_id).startswith("stray ") and retry.payload:
            self._accept_stray(request)
            return
        known = self._retries.get(message_id)
        if retry.payload is None:
            retry.payload = self._row_of(message_id)
        is_news = known is None or known.attempt < retry.attempt or known.payload != retry.payload
        self._book.accept(request, is_news=is_news)
        self._dead_ids.discard(message_id)
        if known and not is_news:
            known.due_ms = 0
        else:
            self._retries[message_id] = retry

    def _row_kept_of(self, message_id: MessageId) -> list[Any] | None:
        """Of a failure that another program has read: its row is where the worker has put it."""
        row = self._kept_rows([message_id]).get(message_id)
        return row if isinstance(row, list) else None

    def _accept_stray(self, request: Request) -> None:
        """It goes by the id that it has, unless that is the id of another row's message, which is not done."""
        payload = request.retry.payload or []
        own_id = self._id_in(payload)
        self._dead_ids.discard(request.message_id)
        if own_id is None:
            self.give_up(request.message_id, NO_ID, payload)
        elif self._row_of(own_id) not in (None, payload):
            self.give_up(request.message_id, WAITS if own_id in self._retries else AWAY, payload)
        else:
            self._retries[own_id] = request.retry
            self._book.note({own_id: request.retry})
        self._book.accept(request, is_news=False)

    def _row_of(self, message_id: MessageId) -> list[Any] | None:
        """Of a message that is not done, if its row is known."""
        known = self._retries.get(message_id)
        return known.payload if known else self._row_kept_of(message_id)
