"""A load on the store itself: processes that init, ack and fail roots, one that reads final events, and rotators."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import AckerError
from redis_acker.store.event_reader import AnyEvents, EventReader
from redis_acker.store.ids import U64Array
from redis_acker.store.streams import Failure
from tests.chaos.harness.journal import Journal, as_runs, from_runs, longest_gap_s, read
from tests.chaos.harness.planted import begin
from tests.chaos.harness.verdict import Verdict

SPOUT = "chaos"
TIMEOUT_MS = 4000
SURE_S = 0.6 * TIMEOUT_MS / 1000
"""What is acked this soon after its init must not time out."""


def open_acker(url: str, namespace: str) -> Acker:
    return Acker(url, namespace=namespace, shards=4, timeout_ms=TIMEOUT_MS)


def send(url: str, namespace: str, folder: Path, seed: int, bug: str, per_s: float) -> None:
    """Makes trees of two edges for ever, so many a second. Most are acked; some are failed, or forgotten."""
    begin(folder, bug)
    rng, journal = random.Random(seed), Journal(folder / "sent")
    with open_acker(url, namespace) as acker:
        due_s = time.monotonic()
        while True:
            try:
                due_s = max(due_s, time.monotonic() - 1) + _send_some(acker, rng, journal) / per_s
            except AckerError as error:
                journal.note("refused", f"{type(error).__name__}: {error}")
            time.sleep(max(0.0, due_s - time.monotonic()))


def _send_some(acker: Acker, rng: random.Random, journal: Journal) -> int:
    """Returns how many."""
    roots = acker.allocate(SPOUT, rng.choice([1, 1, 40, 700]))
    edges, children = new_edges(len(roots)), new_edges(len(roots))
    fates = np.array([rng.choices([0, 1, 2], [94, 3, 3])[0] for _ in range(len(roots))])
    kept, failed = fates == 0, fates == 1
    early = rng.random() < 0.2  # an ack may come before its init
    began_s = time.monotonic()
    journal.note("init", as_runs(roots))
    if early:
        acker.ack(roots[kept], edges[kept] ^ children[kept])
    acker.init(roots, edges)
    journal.note("inited", as_runs(roots))
    if not early:
        acker.ack(roots[kept], edges[kept] ^ children[kept])
    journal.note("all", as_runs(roots[kept]))  # from here on they may complete
    acker.ack(roots[kept], children[kept])
    sure = time.monotonic() - began_s < SURE_S
    journal.note("sure" if sure else "done", as_runs(roots[kept]))
    if failed.any():
        acker.fail(roots[failed], component="chaos", error="wanted")
    return len(roots)


def read_events(url: str, namespace: str, folder: Path, bug: str) -> None:
    """Notes every final event, then releases it."""
    begin(folder, bug)
    journal = Journal(folder / "events")
    with open_acker(url, namespace) as acker:
        while True:
            try:
                _note_all(acker.completions(SPOUT, consumer="one"), journal)
                _note_all(acker.failures(SPOUT, consumer="one"), journal)
                time.sleep(0.05)
            except AckerError:
                continue


def _note_all(reader: EventReader[AnyEvents], journal: Journal) -> None:
    while events := reader.read():
        for event in events:
            kind = event.reason if isinstance(event, Failure) else "completed"
            journal.note(kind, f"{event.shard} {kind} {event.entry}", as_runs(event.roots))
        reader.release(events)


def rotate(url: str, namespace: str, folder: Path, bug: str) -> None:
    begin(folder, bug)
    with open_acker(url, namespace) as acker:
        Rotator(acker).run(threading.Event())


def is_over(acker: Acker) -> bool:
    """Whether every root has had its final event, and the reader has seen it."""
    stats = acker.stats()
    if any(one.pending for one in stats.spouts):
        return False
    with acker.completions(SPOUT, consumer="one") as left, acker.failures(SPOUT, consumer="one") as right:
        return not left.read() and not right.read()


def judge(folder: Path, *, pending: int) -> Verdict:
    sent, done_at_s = _Noted(), []
    for what, at_s, [runs] in read(folder / "sent"):
        if what != "refused":
            sent.add(what, runs)
        if what in ("sure", "done"):
            done_at_s.append(at_s)
    events, entries = _Noted(), set[str]()
    for kind, _, [entry, runs] in read(folder / "events"):
        if entry not in entries:  # an entry that is read again after a kill is the same event
            entries.add(entry)
            events.add(kind, runs)
    told = np.concatenate([events.of(kind) for kind in ("completed", "failed", "timeout")])
    untold = np.setdiff1d(sent.of("inited"), told)
    verdict = Verdict(carried=len(sent.of("init")), replays=len(events.of("timeout")), stall_s=longest_gap_s(done_at_s))
    verdict.wrong |= {
        "lost": max(0, len(untold) - pending),
        "stuck": pending,
        "twice": len(told) - len(np.unique(told)),
        "false": len(np.setdiff1d(events.of("completed"), sent.of("all"))),
        "denied": len(np.intersect1d(sent.of("sure"), events.of("timeout"))),
    }
    return verdict


class _Noted:
    """Roots by what was noted of them."""

    def __init__(self) -> None:
        self._parts: dict[str, list[U64Array]] = defaultdict(list)

    def add(self, what: str, runs: list[list[int]]) -> None:
        self._parts[what].append(from_runs(runs))

    def of(self, what: str) -> U64Array:
        return np.concatenate([np.zeros(0, dtype=np.uint64), *self._parts[what]])
