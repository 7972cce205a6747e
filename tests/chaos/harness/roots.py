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
from redis_acker.store.streams import AnyEvents, EventReader, Failure
from tests.chaos.harness.journal import Journal, longest_gap_s, read
from tests.chaos.harness.planted import begin
from tests.chaos.harness.verdict import Verdict

SPOUT = "chaos"
TIMEOUT_MS = 4000
SURE_S = 0.6 * TIMEOUT_MS / 1000
"""What is acked this soon after its init must not time out."""


def open_acker(url: str, namespace: str) -> Acker:
    return Acker(url, namespace=namespace, shards=4, timeout_ms=TIMEOUT_MS)


def send(url: str, namespace: str, folder: Path, seed: int, bug: str) -> None:
    """Makes trees of two edges for ever. Most are acked; some are failed, or forgotten."""
    begin(folder, bug)
    rng, journal = random.Random(seed), Journal(folder / "sent")
    with open_acker(url, namespace) as acker:
        while True:
            try:
                _send_some(acker, rng, journal)
            except AckerError as error:
                journal.note("refused", f"{type(error).__name__}: {error}")


def _send_some(acker: Acker, rng: random.Random, journal: Journal) -> None:
    roots = acker.allocate(SPOUT, rng.choice([1, 1, 40, 700]))
    edges, children = new_edges(len(roots)), new_edges(len(roots))
    fates = np.array([rng.choices([0, 1, 2], [94, 3, 3])[0] for _ in range(len(roots))])
    kept, failed = fates == 0, fates == 1
    early = rng.random() < 0.2  # an ack may come before its init
    journal.note("init", roots.tolist())
    if early:
        acker.ack(roots[kept], edges[kept] ^ children[kept])
    acker.init(roots, edges)
    journal.note("inited", roots.tolist())
    if not early:
        acker.ack(roots[kept], edges[kept] ^ children[kept])
    journal.note("all", roots[kept].tolist())  # from here on they may complete
    acker.ack(roots[kept], children[kept])
    journal.note("done", roots[kept].tolist())
    if failed.any():
        acker.fail(roots[failed], component="chaos", error="wanted")


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
            journal.note(kind, f"{event.shard} {kind} {event.entry}", event.roots.tolist())
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
    noted: dict[str, set[int]] = defaultdict(set)
    began_s: dict[int, float] = {}
    sure: set[int] = set()
    done_at_s = []
    for what, at_s, [roots] in read(folder / "sent"):
        if what == "refused":
            continue
        noted[what].update(roots)
        if what == "init":
            began_s.update(dict.fromkeys(roots, at_s))
        elif what == "done":
            done_at_s.append(at_s)
            sure.update(root for root in roots if at_s - began_s[root] < SURE_S)
    events: dict[int, dict[str, str]] = defaultdict(dict)
    for kind, _, [entry, roots] in read(folder / "events"):
        for root in roots:
            events[root][entry] = kind  # an entry that is read again after a kill is the same event
    verdict = Verdict(carried=len(noted["init"]), stall_s=longest_gap_s(done_at_s))
    kinds = {root: set(found.values()) for root, found in events.items()}
    completed = {root for root, found in kinds.items() if "completed" in found}
    timed_out = {root for root, found in kinds.items() if "timeout" in found}
    verdict.replays = len(timed_out)
    verdict.wrong |= {
        "lost": max(0, len(noted["inited"] - events.keys()) - pending),
        "stuck": pending,
        "twice": sum(len(found) > 1 for found in events.values()),
        "false": len(completed - noted["all"]),
        "denied": len(sure & timed_out),
    }
    return verdict
