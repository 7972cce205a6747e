"""Tasks that keep the books, without Spark: attempts at a partition that die, sleep and wake where a test wants."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from redis_acker import Acker, Rotator
from redis_acker.errors import ServerUnavailable
from redis_acker.store.message_ids import MessageId
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import RunAbout
from redis_acker.store.shards import Shards
from redis_acker.store.streams import Kind, parse_entry
from redis_acker.store.transport import Command
from spark_integration.frames.fused import FusedSink
from spark_integration.frames.sinks import Sink
from spark_integration.runs.books import Books, TaskBooks
from spark_integration.runs.tracking import COLUMN
from spark_integration.workers import StoreAddress
from tests.clock import Clock
from tests.waiting import wait_until


class Died(BaseException):
    """Ends an attempt, as SIGKILL would: nothing of ours catches it."""


class Refused(Exception):
    """Raised by a sink for a row that it does not take."""


def key_of(number: int) -> int:
    """A key as good as a hash: any 64 bits, different for each message."""
    return (number * 0x9E3779B97F4A7C15 + 0x1234567) % (1 << 64) - (1 << 63)


def batch_of(numbers: Sequence[int]) -> pa.RecordBatch:
    """Rows as a worker gets them; the message id is their number."""
    keys = pa.array(list(map(key_of, numbers)), type=pa.int64())
    column = pa.StructArray.from_arrays([keys], names=["key"])
    return pa.RecordBatch.from_arrays([pa.array(numbers, type=pa.int64()), column], names=["id", COLUMN])


def batches_of(*counts: int) -> list[pa.RecordBatch]:
    """Rows 0, 1, .. in batches of some sizes."""
    ends = np.cumsum(counts).tolist()
    return [batch_of(range(end - count, end)) for count, end in zip(counts, ends, strict=True)]


class Gate:
    """A place at which one thread waits until the test opens it."""

    def __init__(self) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        """Waits here the first time; later it is open."""
        self._reached.set()
        assert self._opened.wait(60), "nobody opened the gate"

    def wait_reached(self) -> None:
        assert self._reached.wait(60), "nobody came to the gate"

    def open(self) -> None:
        self._opened.set()


Before = Callable[[str], None]
"""Called before a script or command goes out, with its name."""


class Wire:
    """What lies between an attempt and the store. Each call is one run() of its transport."""

    def __init__(self, shards: Shards) -> None:
        self._run = shards.transport.run
        self.calls: list[str] = []
        self.dies_at: tuple[int, str] | None = None
        """The number of a call, from 0, and whether it dies 'before' it, 'after' it, or 'half' through it."""
        self.before: Before = lambda name: None
        self.unanswered = 0
        """Calls that gave up."""
        self._is_dead = False
        shards.transport.run = self.run  # type: ignore[method-assign]
        for name in ("begin_portion", "keep_portion", "init", "extend", "fail", "ack"):
            setattr(shards, name, self._late(name, getattr(shards, name)))

    def run(self, commands: Iterable[Command], **options: Any) -> list[Any]:
        given = list(commands)
        self._check(given, "before")
        if self._is_due("half"):
            self._run(given[: len(given) // 2], **options)
            self._check(given, "half")
        try:
            replies = self._run(given, **options)
        except ServerUnavailable:
            self.unanswered += 1
            raise
        self._check(given, "after")
        self.calls.append(self._name(given))
        return replies

    def _late(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call that is made when the test lets it: the clock is read only then."""

        def wait(*args: Any, **options: Any) -> Any:
            self.before(name)
            return call(*args, **options)

        return wait

    def _check(self, given: list[Command], when: str) -> None:
        self._is_dead = self._is_dead or self._is_due(when)
        if self._is_dead:
            raise Died(f"{when} call {len(self.calls)}, {self._name(given)}")

    def _is_due(self, when: str) -> bool:
        return self.dies_at == (len(self.calls), when)

    @staticmethod
    def _name(given: list[Command]) -> str:
        if not given:
            return "nothing"
        return given[0].script.name if given[0].script else str(given[0].args[0])


@dataclass(frozen=True)
class OwnStore(StoreAddress):
    """The store as one attempt sees it, with a connection of its own."""

    _pickled: bytes = b""
    driver_host: str = ""
    given: Acker | None = None

    def acker(self) -> Acker:
        assert self.given is not None
        return self.given


@dataclass
class Run:
    """A run of one spout, whose tasks are attempts in this process."""

    acker: Acker
    open_acker: Callable[[], Acker]
    """Opens a connection for one attempt."""
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    sunk: list[tuple[int, str]] = field(default_factory=list)
    """The rows for which the sink has returned, and in which attempt, in this order."""
    of_root: dict[int, MessageId] = field(default_factory=dict)
    """The message of every root that was ever initialised."""
    begun: Counter[int] = field(default_factory=Counter)
    """How often the sink was called for each row."""

    def __post_init__(self) -> None:
        self.spout_name = f"spout of {self.name}"
        self.spout = self.acker.spout_number(self.spout_name)
        self.progress = RunProgress(self.acker, self.spout)
        self.progress.start(self.name, RunAbout(self.spout_name, 0, "here", 1, "input", "steps"))

    def attempt(self, name: str = "first", **options: Any) -> Attempt:
        return Attempt(self, name, **options)

    def outcomes(self) -> tuple[Counter[MessageId], Counter[MessageId]]:
        """Completions and failures of each message so far, without consuming them."""
        return self._events("completions"), self._events("failures")

    def roots_over(self) -> Counter[int]:
        """Final events of each root."""
        return Counter([*self._roots("completions"), *self._roots("failures")])

    def _events(self, kind: Kind) -> Counter[MessageId]:
        return Counter(self.of_root[root] for root in self._roots(kind))

    def _roots(self, kind: Kind) -> Iterator[int]:
        shards = self.acker.shards
        for shard in range(len(shards)):
            for entry, flat in shards.entries(kind, self.spout, shard):
                yield from parse_entry(kind, shard, entry, flat).roots.tolist()

    def pending(self) -> int:
        return self.acker.pending_count(self.spout_name)

    def rows_sunk(self, attempt: str | None = None) -> Counter[int]:
        return Counter(number for number, by in self.sunk if attempt in (None, by))

    def check(self, rows: Iterable[int], failing: Iterable[int] = ()) -> None:
        """Every message has the one final event that it should have, and every root one at most. None is pending. What
        is complete was sunk."""
        completed, failed = self.outcomes()
        failing = set(failing)
        wanted = {number for number in rows if number not in failing}
        assert completed == Counter(dict.fromkeys(wanted, 1))
        assert failed == Counter(dict.fromkeys(failing, 1))
        self.check_roots()
        assert self.pending() == 0

    def check_roots(self) -> None:
        """No root has two final events, and no message is complete for which the sink has not returned."""
        assert [root for root, count in self.roots_over().items() if count > 1] == []
        assert self.outcomes()[0].keys() <= self.rows_sunk().keys()


MakeRun = Callable[..., Run]

Act = Callable[[int], None]
"""Called by the sink with each row, before it is sunk."""


class Attempt:
    """One attempt at a partition."""

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        act: Act = lambda number: None,
        partition: int = 0,
        sink: Callable[[Run], Sink] | None = None,
        known: dict[int, int] | None = None,
        max_attempts: int = 3,
    ) -> None:
        self.run_, self.name, self._act = run, name, act
        self.acker = run.open_acker()
        self._real_init = self.acker.init
        self.acker.init = self._init  # type: ignore[method-assign]
        keys = {key_of(number): attempts for number, attempts in (known or {}).items()}
        self.books = Books(
            OwnStore(given=self.acker),
            run.name,
            run.spout,
            "id",
            0,
            max_attempts,
            np.array(sorted(keys), dtype=np.int64),
            [keys[key] for key in sorted(keys)],
        )
        worker = FusedSink(
            (), sink(run) if sink else Sink("store", self._store, per="row"), self.books, is_replay=False
        )
        self.task = TaskBooks(self.books, partition, worker.work)
        self.wire = Wire(self.acker.shards)
        self.error: BaseException | None = None
        self.rows: int | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Attempt:
        """Works until the rows end, or it dies."""
        try:
            self.rows = self.task.run(iter(batches))
        except (Exception, Died) as error:
            self.error = error
        return self

    def start(self, batches: Iterable[pa.RecordBatch]) -> threading.Thread:
        """The same in a thread."""
        thread = threading.Thread(target=self, args=(batches,), daemon=True)
        thread.start()
        return thread

    def done(self) -> Attempt:
        """Makes sure that it came to the end of its rows."""
        if self.error:
            raise self.error
        assert self.rows is not None
        return self

    def _init(self, roots: Any, ack_vals: Any, **options: Any) -> Any:
        self.run_.of_root.update(zip(roots.tolist(), options["message_ids"].tolist(), strict=True))
        return self._real_init(roots, ack_vals, **options)

    def _store(self, row: Any) -> None:
        self.run_.begun[row.id] += 1
        self._act(row.id)
        self.run_.sunk.append((row.id, self.name))


def forget_finished(acker: Acker, clock: Clock) -> None:
    """Lets so much time pass that the store has forgotten which blocks are over."""
    for _ in range(2 * acker.settings.buckets + 2):
        clock.advance(acker.settings.tick_ms)
        Rotator(acker).once()


def expire(run: Run, clock: Clock) -> None:
    """Lets everything time out that is pending."""
    forget_finished(run.acker, clock)
    wait_until(lambda: run.pending() == 0)
