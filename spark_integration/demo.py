"""The job of `redis-acker demo`: sentences -> split -> count, with poison among them and a worker that is killed.

May import: redis_acker, frames.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, FailedTuple, RetryPolicy
from spark_integration.frames.track import track

SPOUT = "sentences"
POISON_EVERY = 100
"""One sentence in this many cannot be split."""

ATTEMPTS = 3
PAUSE_MS = 200
"""Before the second attempt."""

TEXT = "the quick brown fox jumps over a lazy dog while every cow and one small cat sit near some old red barn"
WORDS = tuple(TEXT.split())
SHOWN_WORDS = 3


@dataclass(frozen=True)
class Balance:
    """Where every message went."""

    messages: int
    completed: int
    dead: int
    failed_attempts: int
    pending: int
    lost: int
    """Neither completed nor dead nor pending: there must be none."""
    words: int
    """That were counted."""
    expected_words: int
    """Of all messages that are complete."""
    top: list[tuple[str, int]]
    seconds: float

    @property
    def balanced(self) -> bool:
        return (
            self.messages == self.completed + self.dead
            and not (self.pending or self.lost)
            and self.words == self.expected_words
        )


def make_sentences(count: int) -> list[tuple[int, str]]:
    """Sentences with their numbers; every hundredth is poison."""
    draw = random.Random(1)
    sentences = []
    for i in range(count):
        poison = i % POISON_EVERY == POISON_EVERY - 1
        sentences.append((i, "\N{SKULL AND CROSSBONES}" if poison else " ".join(draw.choices(WORDS, k=10))))
    return sentences


def split(row: Row) -> list[tuple[str]]:
    """The words of a sentence. The worker that meets the first sentence is killed, once."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if row.id == 0 and context is not None and context.attemptNumber() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if not row.sentence.isascii():
        raise FailedTuple(f"cannot split {row.sentence}")
    return [(word,) for word in row.sentence.split()]


def run(spark: SparkSession, acker: Acker, messages: int, *, progress: bool | None) -> Balance:
    """Tracks the sentences, and says where they went."""
    start_s = time.monotonic()
    sentences = make_sentences(messages)
    frame = spark.createDataFrame(sentences, "id long, sentence string").repartition(4, "id")
    tracked = track(
        frame,
        acker=acker,
        spout=SPOUT,
        message_id="id",
        retries=RetryPolicy(max_attempts=ATTEMPTS, first_ms=PAUSE_MS),
        replays=ATTEMPTS - 1,
        stable_source=True,  # the driver holds them
        progress=progress,
    )
    failed_before = _failed(acker)
    counts = tracked.flat_map(split, "word string").group_by("word").agg(F.count("*").alias("count"))
    rows, summary = counts.collect()
    found: Counter[str] = Counter()
    for row in rows:
        found[row.word] += row["count"]
    pending = acker.pending_count(SPOUT)
    return Balance(
        messages=messages,
        completed=summary.completed,
        dead=summary.dead,
        failed_attempts=_failed(acker) - failed_before,
        pending=pending,
        lost=messages - summary.completed - summary.dead - pending,
        words=found.total(),
        expected_words=sum(len(sentence.split()) for _, sentence in sentences if sentence.isascii()),
        top=found.most_common(SHOWN_WORDS),
        seconds=time.monotonic() - start_s,
    )


def _failed(acker: Acker) -> int:
    return sum(one.failed + one.timeout for one in acker.stats().spouts if one.name == SPOUT)


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """A small session. Spark's output goes to a file that is kept only if something goes wrong."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log, path = tempfile.mkstemp(prefix="redis-acker-demo-", suffix=".log")
    stderr = os.dup(2)
    os.dup2(log, 2)  # the JVM that starts now and its Python workers write there
    try:
        builder = SparkSession.builder.master(master).appName("redis-acker demo")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "4",
            **(
                {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} if "local" in master else {}
            ),
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(log)
    try:
        yield spark
    except BaseException:
        print(f"What Spark logged is in {path}.", file=sys.stderr)
        raise
    finally:
        spark.stop()
    os.unlink(path)
