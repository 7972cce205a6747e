"""One run of a job with a shuffle: its messages are pending while Spark works, and the driver ends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from pyspark.sql import SparkSession

from redis_acker.errors import StoreLost
from redis_acker.store.streams import Cause
from spark_integration.runs.collected import CollectedMessages
from spark_integration.runs.deliveries import Deliveries
from spark_integration.runs.failing import NotedRows, ServerLives, Tracking
from spark_integration.runs.gathered import GatheredDeliveries
from spark_integration.runs.inputs import CompletedInput, HandedOverInput, RunInput
from spark_integration.runs.life import RunLife, RunOptions
from spark_integration.runs.messages import MessageFrame
from spark_integration.runs.shuffled import MessagesInRun
from spark_integration.runs.summary import Summary
from spark_integration.runs.tracking import InlineTables, Keys, KeyTable, send_tables
from spark_integration.workers import StoreAddress

Input = MessageFrame | Deliveries

AnyInput = TypeVar("AnyInput", bound=RunInput)


class Run(RunLife, Generic[AnyInput]):
    """A context manager. Inside it all messages are pending; when it ends each of them is completed or failed."""

    inputs: list[AnyInput]
    tracking: Tracking

    def __init__(self, spark: SparkSession, options: RunOptions, *, is_replay: bool = False) -> None:
        super().__init__(spark, options, [_WatchedRun(self)])
        self._is_replay = is_replay
        self._notes = NotedRows(options.acker, self.name)
        self._are_notes_read = False
        self._has_python = True
        """Whether workers may fail rows."""
        self._lives: ServerLives | None = None
        self._written = options.in_stream.written if options.in_stream else None
        self._is_written = False
        """Or may be: whether that is noted."""

    def __len__(self) -> int:
        """How many messages and deliveries it tracks."""
        return sum(map(len, self.inputs))

    def _tables(self) -> list[KeyTable]:
        """Of the inputs whose roots workers find themselves."""
        raise NotImplementedError

    def _take(self) -> None:
        for one in self.inputs:
            one.take_lease()

    def _begin(self) -> None:
        self._lives = ServerLives(self._acker) if self._has_python or self._written else None
        self._notes.begin()
        for one in self.inputs:
            one.make_pending()
        tables = send_tables(self._spark, self._tables())
        self.tracking = Tracking(StoreAddress.of(self._acker), self.name, tables, self._is_replay)

    def _end(self, error: BaseException | None) -> None:
        # A run that has lost its spout leaves it to the one that has it now, and what is written to whoever acks it.
        is_left = error is not None and self._is_written
        mine = [] if is_left else [one for one in self.inputs if one.has_lease()]
        if error is not None:
            for one in mine:
                one.fail(f"{type(error).__name__}: {error}")
        self._notes.delete()
        self._watch.stop()  # not before, since it renews leases; not later, since it would take them again
        for one in mine:
            one.close()

    def _unfinished(self) -> str:
        return f"{len(self):,} messages"

    def check_servers(self) -> None:
        """Raises StoreLost if what workers told them may be lost. What was read before this was whole."""
        if self._lives and self._has_python:
            self._lives.check()

    def free_tables(self) -> None:
        """Frees what workers were sent. After this no frame of the run can be computed again."""
        if not isinstance(self.tracking.tables, InlineTables):
            self.tracking.tables.destroy()  # type: ignore[attr-defined]

    @property
    def _token(self) -> str:
        return f"run {self.name}"


class JobRun(Run[CompletedInput]):
    """A run whose messages are done when the job is."""

    def __init__(
        self, inputs: Sequence[Input], options: RunOptions, *, is_replay: bool = False, has_python: bool = True
    ) -> None:
        super().__init__(inputs[0].frame.sparkSession, options, is_replay=is_replay)
        self._has_python = has_python
        acker = options.acker
        self.inputs = [
            MessagesInRun(one, acker, options.retries, self.name, options.in_stream)
            if isinstance(one, MessageFrame)
            else GatheredDeliveries(one, acker, self.name)
            for one in inputs
        ]

    def _tables(self) -> list[KeyTable]:
        return [one.key_table() for one in self.inputs if isinstance(one, GatheredDeliveries)]

    def noted(self, *, without: set[int]) -> dict[Cause, Keys]:
        """The keys of rows that have failed, by cause: of messages, or of groups after an aggregation."""
        known = np.fromiter(without, dtype=np.int64)
        rest = {cause: keys[~np.isin(keys, known)] for cause, keys in self._notes.read().items()}
        return {cause: keys for cause, keys in rest.items() if len(keys)}

    def note(self, keys: Keys, cause: Cause) -> None:
        """Notes failed rows as workers do."""
        self._notes.add(keys, cause)

    def fail_messages(self, failed: dict[Cause, Keys]) -> set[int]:
        """Fails the messages among some keys. Returns these keys; the others are those of groups."""
        self._are_notes_read = True
        found: set[int] = set()
        for one in self.inputs:
            if isinstance(one, MessagesInRun):
                found |= set(one.fail_keys(failed).tolist())
        return found

    def complete(self) -> Summary:
        """Acks what has not failed."""
        self._watch.check()
        self.check_servers()
        for one in self.inputs:
            if isinstance(one, MessagesInRun):
                one.check_stored()
        self._note_written()
        try:
            for one in self.inputs:
                one.complete(self._token)
        except StoreLost:
            if self._written:
                self._written.forget()  # before it fails
                self._is_written = False
            raise
        return Summary.of_inputs([one.summary(self._seconds) for one in self.inputs])

    def _note_written(self) -> None:
        if self._written and self._lives:
            self._is_written = True  # first: the note may be stored though its reply is lost
            mine = [one for one in self.inputs if isinstance(one, MessagesInRun)]
            spans = [span for one in mine for span in one.spans]
            failed = [root for one in mine for root in one.failed_roots]
            self._written.note(self._token, self._lives.at_first, spans, failed)


class HandOverRun(Run[HandedOverInput]):
    """A run whose rows leave for another application."""

    def __init__(self, inputs: Sequence[Input], options: RunOptions) -> None:
        super().__init__(inputs[0].frame.sparkSession, options)
        acker = options.acker
        self.inputs = [
            CollectedMessages(one, acker, options.retries)
            if isinstance(one, MessageFrame)
            else GatheredDeliveries(one, acker, self.name)
            for one in inputs
        ]

    def _tables(self) -> list[KeyTable]:
        return [one.key_table() for one in self.inputs]

    def hand_over(self, keys: Keys, edges: Keys) -> None:
        """Acks everything in exchange for the edges of rows that another application has to ack."""
        self._watch.check()
        self.check_servers()
        for one in self.inputs:
            one.hand_over(keys, edges, self._token)


class _WatchedRun:
    """A run as its watch sees it."""

    def __init__(self, run: Run[AnyInput]) -> None:
        self._run = run

    @property
    def name(self) -> str:
        return ", ".join(one.name for one in self._run.inputs)

    def renew_lease(self) -> None:
        for one in self._run.inputs:
            one.renew_lease()

    def extend(self) -> None:
        self._run._notes.keep()
        for one in self._run.inputs:
            one.extend()

    def counts(self) -> tuple[int, int]:
        """Rows that have failed count as one message each, until it is known whose they are."""
        self._run.check_servers()
        counts = [one.counts() for one in self._run.inputs]
        noted = 0 if self._run._are_notes_read else len(self._run._notes)
        return sum(completed for completed, _ in counts), noted + sum(failed for _, failed in counts)
