"""`redis-acker demo`: every message in is accounted for, with acks in random order, failures and timeouts."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import click
import numpy as np
from numpy.typing import NDArray

from redis_acker.acker import Acker
from redis_acker.embedded import EmbeddedServer
from redis_acker.ids import U64Array, new_edges
from redis_acker.outcomes import Outcome
from redis_acker.rotator import Rotator

COMPONENTS = ("split", "count", "save")
WAVE = 10_000
"""Messages that the spout emits at once."""
PART = 1_000
"""Roots whose acks a component sends at once."""

TIMEOUT_MS = 3_000
BUCKETS = 4
"""So that the silent roots time out within 4 s."""
PATIENCE_S = 20.0
"""How long final events may keep the demo waiting before it counts the rest as pending or lost."""

FAILED = 0.01
SILENT = 0.005
SENT_TWICE = 0.1

WIPE_LINE = "\r\033[K"

DONE, FAILS, STAYS_SILENT = 0, 1, 2


@dataclass(frozen=True)
class Books:
    """Where every message went."""

    server: str
    messages: int
    completed: int
    failed: int
    timed_out: int
    pending: int
    lost: int
    """Neither pending nor ended: there must be none."""
    twice: int
    """With more than one final event: there must be none."""
    acks_sent_twice: int
    acks_applied_twice: int
    """There must be none."""
    seconds: float

    @property
    def balanced(self) -> bool:
        ended = self.completed + self.failed + self.timed_out
        return self.messages == ended and not (self.pending or self.lost or self.twice or self.acks_applied_twice)


class Tally:
    """Counts final events, root by root, while they come in."""

    def __init__(self, roots: U64Array) -> None:
        self._roots = roots
        self._events: NDArray[np.uint8] = np.zeros(len(roots), dtype=np.uint8)
        self.completed = self.failed = self.timed_out = 0

    def read(self, acker: Acker, stop: threading.Event) -> None:
        """Takes completions and failures out of their streams until told to stop."""
        with acker.completions("demo") as completions, acker.failures("demo") as failures:
            while not stop.is_set():
                for completion in completions.consume():
                    self.completed += self._count(completion)
                for failure in failures.consume():
                    amount = self._count(failure)
                    if failure.reason == "timeout":
                        self.timed_out += amount
                    else:
                        self.failed += amount
                stop.wait(0.02)

    def _count(self, outcome: Outcome) -> int:
        np.add.at(self._events, np.searchsorted(self._roots, outcome.roots), 1)
        return len(outcome)

    @property
    def ended(self) -> int:
        return int(np.count_nonzero(self._events))

    @property
    def twice(self) -> int:
        return int(np.count_nonzero(self._events > 1))


class Components:
    """Three components, one after the other on each message's way, that ack in bulk and in no order."""

    def __init__(self, acker: Acker) -> None:
        self._acker = acker
        self._random = np.random.default_rng()
        self.sent_twice = self.applied_twice = 0

    def work_off(self, wave: int, roots: U64Array) -> None:
        """Emits one wave of messages and acks, fails or forgets each of them."""
        edges = [new_edges(len(roots)) for _ in COMPONENTS]
        self._acker.init(roots, edges[0], message_ids=np.arange(len(roots)) + wave * WAVE)
        fates = self._random.choice(3, len(roots), p=[1 - FAILED - SILENT, FAILED, SILENT])
        # Who fails a message or forgets it; those after it never see the message.
        culprits = np.where(fates == DONE, len(COMPONENTS), self._random.integers(0, len(COMPONENTS), len(roots)))
        for position, part in self._parts(len(roots)):
            # An ack val: the edge of the tuple that came in and the edge of the one that went out, if any.
            ack_vals = edges[position] ^ edges[position + 1] if position + 1 < len(edges) else edges[position]
            reached = part[culprits[part] > position]
            self._ack(f"wave {wave}, {COMPONENTS[position]}, {part[0]}", roots[reached], ack_vals[reached])
            failed = part[(culprits[part] == position) & (fates[part] == FAILS)]
            self._acker.fail(roots[failed], component=COMPONENTS[position], error="failed for the sake of the demo")

    def _parts(self, count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The work of every component in pieces, all in random order."""
        pieces = [
            (position, part)
            for position in range(len(COMPONENTS))
            for part in np.array_split(self._random.permutation(count), -(-count // PART))
        ]
        for i in self._random.permutation(len(pieces)).tolist():
            yield pieces[i]

    def _ack(self, token: str, roots: U64Array, ack_vals: U64Array) -> None:
        self._acker.ack(roots, ack_vals, token=token)
        if self._random.random() < SENT_TWICE:
            self.sent_twice += len(roots)
            self.applied_twice += self._acker.ack(roots, ack_vals, token=token).applied


def run(messages: int, show: Callable[[int], None]) -> Books:
    """Tracks messages on a server of its own; show gets the count of final events now and then."""
    start, stop = time.monotonic(), threading.Event()
    with (
        EmbeddedServer() as server,
        Acker(server.url, namespace="demo", timeout_ms=TIMEOUT_MS, buckets=BUCKETS) as acker,
        Rotator(acker).start(),
        ThreadPoolExecutor(1) as threads,
    ):
        roots = acker.allocate("demo", messages)
        tally, components = Tally(roots), Components(acker)
        reading = threads.submit(tally.read, acker, stop)
        try:
            for wave, at in enumerate(range(0, messages, WAVE)):
                components.work_off(wave, roots[at : at + WAVE])
                show(tally.ended)
            deadline = time.monotonic() + PATIENCE_S
            while tally.ended < messages and time.monotonic() < deadline and not reading.done():
                show(tally.ended)
                time.sleep(0.05)
        finally:
            stop.set()
        reading.result()
        pending = acker.pending_count()
        return Books(
            server=server.version,
            messages=messages,
            completed=tally.completed,
            failed=tally.failed,
            timed_out=tally.timed_out,
            pending=pending,
            lost=messages - tally.ended - pending,
            twice=tally.twice,
            acks_sent_twice=components.sent_twice,
            acks_applied_twice=components.applied_twice,
            seconds=round(time.monotonic() - start, 1),
        )


def table(books: Books) -> str:
    """The books as a person reads them."""
    rows = [
        ("messages in", books.messages, ""),
        ("completed", books.completed, "every ack came, in whatever order"),
        ("failed", books.failed, "failed by a component"),
        ("timed out", books.timed_out, "an ack never came"),
        ("pending", books.pending, ""),
        ("lost", books.lost, "no final event"),
        ("twice", books.twice, "more than one final event"),
        ("acks sent twice", books.acks_sent_twice, "as after a lost reply, under the same token"),
        ("of these applied twice", books.acks_applied_twice, ""),
    ]
    lines = [f"{name:<24}{value:>9,}   {remark}".rstrip() for name, value, remark in rows]
    head = f"On {books.server}, through {', '.join(COMPONENTS)}, in {books.seconds:g} s:"
    verdict = "The books balance." if books.balanced else "The books do NOT balance."
    return "\n".join([head, "", *lines, "", verdict])


@click.command()
@click.option(
    "--messages", type=click.IntRange(1, 10_000_000), default=100_000, show_default=True, help="How many to track."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object in place of the table.")
def demo(messages: int, as_json: bool) -> None:
    """Track messages on a server of its own and balance the books.

    Three components ack them in bulk and in random order, fail one in a hundred and forget one in two hundred, which
    then time out. Some acks are sent twice. The exit code is 0 if every message had exactly one final event.
    """
    live = sys.stderr.isatty()

    def show(ended: int) -> None:
        if live:
            click.echo(f"\r{ended:>10,} of {messages:,} messages have their final event", nl=False, err=True)

    books = run(messages, show)
    if live:
        click.echo(WIPE_LINE, nl=False, err=True)
    click.echo(json.dumps({**asdict(books), "balanced": books.balanced}) if as_json else table(books))
    sys.exit(0 if books.balanced else 1)
