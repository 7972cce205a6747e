"""A load whose failures nobody reads but an operator: processes make messages that fail or time out, and others run
`drain` and `replay` over and over, each of them killed anywhere and run again with the same file."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from redis_acker import Acker, new_edges
from redis_acker.cli.main import main
from redis_acker.errors import AckerError
from redis_acker.retries.book import RetryBook
from redis_acker.store.message_ids import MessageId
from tests.chaos.harness.journal import Journal, longest_gap_s, read
from tests.chaos.harness.planted import begin
from tests.chaos.harness.roots import SPOUT, open_acker
from tests.chaos.harness.verdict import Verdict

PAUSE_S = 0.05
FAILED = 0.7
"""Share of the messages that fail; the others time out."""


def send(url: str, namespace: str, folder: Path, seed: int, bug: str) -> None:
    """Makes messages pending for ever."""
    begin(folder, bug)
    rng, journal, number = random.Random(seed + os.getpid()), Journal(folder / "sent"), 0
    with open_acker(url, namespace) as acker:
        while True:
            count = rng.choice([1, 5, 100])
            names = [f"{os.getpid()}-{number + i}" for i in range(count)]
            number += count
            try:
                roots, edges = acker.allocate(SPOUT, count), new_edges(count)
                acker.init(roots, edges, message_ids=names)
                journal.note("init", names)
                acker.fail(roots[: int(FAILED * count)], component="chaos", error="wanted")
            except AckerError as error:
                journal.note("refused", f"{type(error).__name__}: {error}")
            time.sleep(PAUSE_S)


def operate(url: str, namespace: str, folder: Path, name: str, bug: str) -> None:
    """Drains into a file until that succeeds, replays the file until that succeeds, and takes the next file."""
    begin(folder, bug)
    while True:
        done = len(list(folder.glob(f"{name}-*.replayed")))
        file = folder / f"{name}-{done}.jsonl"
        drained = file.with_suffix(".drained")
        where = ["--url", url, "-n", namespace]
        if not drained.exists():
            if _run(["drain", "--out", str(file), *where]):
                drained.touch()
        elif not file.exists() or _run(["replay", str(file), *where]):
            drained.rename(file.with_suffix(".replayed"))
        time.sleep(PAUSE_S)


def _run(command: list[str]) -> bool:
    """Whether a command of redis-acker succeeds."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        try:
            main(command)
        except SystemExit as end:
            return end.code in (0, None)
    return True


def is_over(acker: Acker, folder: Path) -> bool:
    """Whether every message that was made pending waits for its replay."""
    return acker.pending_count() == 0 and not _missing(acker, folder)


def _asked(acker: Acker) -> Counter[MessageId]:
    return Counter(request.message_id for request in RetryBook(acker, SPOUT).requests())


def _missing(acker: Acker, folder: Path) -> set[str]:
    sent = {name for what, _, facts in read(folder / "sent") if what == "init" for name in facts[0]}
    return sent - {str(name) for name in _asked(acker)}


def judge(acker: Acker, folder: Path) -> Verdict:
    sent = [name for what, _, facts in read(folder / "sent") if what == "init" for name in facts[0]]
    times_s = [at_s for what, at_s, _ in read(folder / "sent") if what == "init"]
    lines = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    written = Counter(line["root"] for line in lines if "root" in line)
    pending = acker.pending_count()
    verdict = Verdict(carried=len(sent), replays=len(_asked(acker)), stall_s=longest_gap_s(times_s))
    verdict.wrong |= {
        "lost": max(0, len(_missing(acker, folder)) - pending),
        "stuck": pending,
        "twice": sum(count - 1 for count in written.values()),
        "innocents": sum(len(request.retry.history) > 1 for request in RetryBook(acker, SPOUT).requests()),
    }
    return verdict
