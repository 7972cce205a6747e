"""A load on the whole way: a file of messages, a spout, two bolts, replays and dead letters, in one process that may be
killed and started again."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from redis_acker import (
    Acker,
    BasicBolt,
    FailedTuple,
    LocalRunner,
    OutputCollector,
    RetryPolicy,
    TaskContext,
    TopologyBuilder,
    Tuple,
)
from redis_acker.errors import AckerError
from redis_acker.spouts.jsonl import JsonLinesSpout
from redis_acker.store.message_ids import MessageId
from tests.chaos.harness.journal import Journal, longest_gap_s, read
from tests.chaos.harness.planted import begin
from tests.chaos.harness.roots import open_acker
from tests.chaos.harness.verdict import Verdict

CHILDREN = 3
POISON_EVERY = 397
WORK_S = 0.001
POLICY = RetryPolicy(max_attempts=5, first_ms=50, longest_ms=500)
IDLE_AFTER_S = 3


class NotedSpout(JsonLinesSpout):
    """Notes what it is told about its messages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "messages", checkpoint=folder / "checkpoint", fields=("number",))
        self._folder = folder

    def open(self, context: TaskContext) -> None:
        self._journal = Journal(self._folder / "told")
        super().open(context)

    def ack(self, message_id: MessageId) -> None:
        self._journal.note("acked", message_id)
        super().ack(message_id)

    def dead(self, message_id: MessageId) -> None:
        self._journal.note("dead", message_id)
        super().ack(message_id)


class Fan(BasicBolt):
    fields = ("number", "child")

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        for child in range(CHILDREN):
            emit(tup["number"], child)


class Work(BasicBolt):
    """Fails one tuple in a hundred by chance, and all of some messages."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        self._journal = Journal(self._folder / "told")
        self._rng = random.Random(self._seed + os.getpid())

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if is_poison(tup["number"]) or self._rng.random() < 0.01:
            raise FailedTuple("wanted")
        time.sleep(WORK_S)
        self._journal.note("worked", tup["number"], tup["child"])


def is_poison(number: int) -> bool:
    return number % POISON_EVERY == 1


def write_messages(folder: Path, count: int) -> None:
    lines = (json.dumps({"number": number}) for number in range(count))
    (folder / "messages").write_text("".join(f"{line}\n" for line in lines))


def run(url: str, namespace: str, folder: Path, seed: int, bug: str) -> None:
    """Runs until every message is done. Waits for a store that is away when it begins."""
    begin(folder, bug)
    builder = TopologyBuilder("chaos")
    builder.spout("file", NotedSpout(folder))
    builder.bolt("fan", Fan()).shuffle("file")
    builder.bolt("work", Work(folder, seed), parallelism=4).shuffle("fan")
    while True:
        try:
            with open_acker(url, namespace) as acker, _runner(builder, acker) as runner:
                while not runner.wait_until_idle(timeout_s=IDLE_AFTER_S):
                    continue
                return
        except AckerError as error:
            Journal(folder / "told").note("ended", f"{type(error).__name__}: {error}")


def _runner(builder: TopologyBuilder, acker: Acker) -> LocalRunner:
    return LocalRunner(
        builder.build(), acker, retries=POLICY, max_pending=500, own_timeout_ms=12_000, wait_for_lease=True
    )


def judge(folder: Path, *, pending: int) -> Verdict:
    starts, number_at = 0, dict[int, int]()
    for line in (folder / "messages").read_bytes().splitlines(keepends=True):
        number_at[starts] = json.loads(line)["number"]
        starts += len(line)
    worked: dict[int, set[int]] = defaultdict(set)
    tries: Counter[tuple[int, int]] = Counter()
    told: dict[int, set[str]] = defaultdict(set)
    verdict = Verdict(carried=len(number_at))
    times_s = []
    for what, at_s, facts in read(folder / "told"):
        if what == "worked":
            worked[facts[0]].add(facts[1])
            tries[facts[0], facts[1]] += 1
            times_s.append(at_s)
        elif what in ("acked", "dead"):
            number = number_at[facts[0]]
            told[number].add(what)
            verdict.wrong["false"] += what == "acked" and len(worked[number]) < CHILDREN
            verdict.wrong["innocents"] += what == "dead" and not is_poison(number)
    verdict.replays = sum(count - 1 for count in tries.values())
    verdict.stall_s = longest_gap_s(times_s)
    verdict.wrong["stuck" if pending else "lost"] = sum(number not in told for number in number_at.values())
    verdict.wrong["twice"] = sum(len(found) > 1 for found in told.values())
    return verdict
