"""A load of tasks that keep the books of a Spark run, without Spark: processes that work on partitions, several at the
same one, over inputs that may end early, as they do in a worker when Spark fails on the other side."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from redis_acker import Acker
from redis_acker.errors import AckerError
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import RunAbout, field_of
from redis_acker.store.streams import Cause
from spark_integration.errors import OtherRows
from spark_integration.runs import books, portions
from spark_integration.workers import StoreAddress
from tests.chaos.harness.journal import Journal, as_runs, from_runs, longest_gap_s, read
from tests.chaos.harness.planted import begin
from tests.chaos.harness.roots import SPOUT, open_acker
from tests.chaos.harness.verdict import Verdict
from tests.spark.frames.tasks import batch_of

RUN = "chaos"
PARTITIONS = 2
"""Fewer than there are workers: attempts at one partition meet."""

FIRST = 2
"""The number of the first message."""

ROW_S = 0.001
POISON_EVERY = 97
WANTED = Cause("sink", "wanted")
TRUNCATED = 0.8
"""Share of the attempts whose input ends early."""
TRUNCATED_AFTER = 600
"""Rows after those that are done, at most: in what another has in its hands."""

FIRST_PORTIONS, PORTIONS_S = (10, 500), (0.2, 1.5)
"""Rows of a worker's first portion, and how long others take: those who take over cut them in another way."""


def start_run(acker: Acker, folder: Path, messages: int) -> None:
    (folder / "count").write_text(str(messages // PARTITIONS))
    about = RunAbout(SPOUT, 0, "here", PARTITIONS, "input", "steps")
    RunProgress(acker, acker.spout_number(SPOUT)).start(RUN, about)


def work(url: str, namespace: str, folder: Path, seed: int, bug: str) -> None:
    """Attempts at partitions, until all have come to their end."""
    begin(folder, bug)
    rng, journal = random.Random(seed + os.getpid()), Journal(folder / "told")
    rows = int((folder / "count").read_text())
    portions.FIRST_ROWS, portions.PORTION_S = rng.choice(FIRST_PORTIONS), rng.choice(PORTIONS_S)
    with open_acker(url, namespace) as opened:
        address = StoreAddress.of(opened)
        _note_inits(address.acker(), journal)
        partition = rng.randrange(PARTITIONS)
        while left := sorted({*range(PARTITIONS)} - _ended(folder)):
            if partition not in left:  # a task that failed, or whose input ended early, is tried again
                partition = rng.choice(left)
            end = rows
            if rng.random() < TRUNCATED:
                end = min(rows, _done(address.acker(), partition) + rng.randrange(TRUNCATED_AFTER))
            try:
                _attempt(address, journal, partition, _batches(FIRST + partition * rows, end, rng))
            except (AckerError, OtherRows) as error:
                journal.note("failed", f"{type(error).__name__}: {error}")
            else:
                if end == rows:
                    journal.note("ended", partition)


def _done(acker: Acker, partition: int) -> int:
    """Rows of a partition that are done."""
    known = acker.shards.progress(acker.spout_number(SPOUT)).get(field_of(0, partition))
    return int(known.split()[0]) if known else 0


def _ended(folder: Path) -> set[int]:
    return {facts[0] for what, _, facts in read(folder / "told") if what == "ended"}


def _attempt(address: StoreAddress, journal: Journal, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
    def sink(batch: pa.RecordBatch) -> books.FailedPlaces:
        time.sleep(ROW_S * batch.num_rows)
        numbers = batch["id"].to_numpy()
        journal.note("sunk", as_runs(numbers.astype(np.uint64)))
        poison = np.flatnonzero(_are_poison(numbers)).tolist()
        return {WANTED: poison} if poison else {}

    spout = address.acker().spout_number(SPOUT)
    no_keys = np.zeros(0, dtype=np.int64)
    told = books.Books(address, RUN, spout, "id", 0, 2, no_keys, [])
    books.TaskBooks(told, partition, sink).run(batches)


def _batches(first: int, rows: int, rng: random.Random) -> Iterator[pa.RecordBatch]:
    """The same rows at every attempt, in batches of other sizes."""
    at = 0
    while at < rows:
        count = min(rng.randrange(50, 1000), rows - at)
        yield batch_of(range(first + at, first + at + count))
        at += count


def _are_poison(numbers: Any) -> Any:
    return numbers % POISON_EVERY == 1


def _note_inits(acker: Acker, journal: Journal) -> None:
    """Notes which root stands for which message, before it is pending."""
    init = acker.init

    def noted(roots: Any, ack_vals: Any, **options: Any) -> Any:
        journal.note("init", as_runs(roots), as_runs(np.asarray(options["message_ids"]).astype(np.uint64)))
        return init(roots, ack_vals, **options)

    acker.init = noted  # type: ignore[method-assign]


def judge(folder: Path, *, pending: int) -> Verdict:
    """A message may fail more than once: what was taken over, or timed out, is for the next pass of the run."""
    number_of: dict[int, int] = {}
    sunk_at_s: dict[int, float] = {}
    times_s, sunk = [], 0
    for what, at_s, facts in read(folder / "told"):
        if what == "init":
            number_of.update(zip(from_runs(facts[0]).tolist(), from_runs(facts[1]).tolist(), strict=True))
        elif what == "sunk":
            times_s.append(at_s)
            for number in from_runs(facts[0]).tolist():
                sunk += 1
                sunk_at_s.setdefault(number, at_s)
    verdict = Verdict(carried=PARTITIONS * int((folder / "count").read_text()))
    verdict.replays, verdict.stall_s = sunk - len(sunk_at_s), longest_gap_s(times_s)
    told, roots = set[int](), set[int]()
    for kind, at_ms, runs in _events(folder):
        for root in from_runs(runs).tolist():
            number = number_of[root]
            told.add(number)
            verdict.wrong["twice"] += root in roots
            roots.add(root)
            if kind == "completed":
                was_sunk = number in sunk_at_s and int(1000 * sunk_at_s[number]) <= at_ms
                verdict.wrong["false"] += not was_sunk or bool(_are_poison(number))
    verdict.wrong["stuck"] = pending
    verdict.wrong["lost"] = max(0, verdict.carried - len(told) - pending)
    return verdict


def _events(folder: Path) -> Iterator[tuple[str, int, list[list[int]]]]:
    """Kind, time and roots of each entry; once, since one that is read again after a kill is the same event. Its id is
    when the server wrote it, in ms by the clock of this machine."""
    seen: set[str] = set()
    for kind, _, [name, runs] in read(folder / "events"):
        if name not in seen:
            seen.add(name)
            yield kind, int(name.split()[-1].partition("-")[0]), runs
