"""The messages of a job with a shuffle, without Spark: partitions are lists of batches, and tasks run in this process,
against a real store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from redis_acker import Acker, RetryPolicy
from redis_acker.store.message_ids import MessageId
from spark_integration.runs import pending, shuffled
from spark_integration.runs.books import Books
from spark_integration.runs.messages import MessageFrame
from spark_integration.runs.shuffled import MessagesInRun
from spark_integration.runs.tracking import COLUMN, ID
from spark_integration.workers import StoreAddress
from tests.spark.frames.tasks import key_of

SPOUT = "numbers"
ROWS = 100
PORTION_ROWS = 24
"""Three blocks."""

Partition = Sequence[pa.RecordBatch]


def batch_of(numbers: Sequence[int]) -> pa.RecordBatch:
    """Keys and ids as a worker gets them."""
    keys, ids = pa.array(list(map(key_of, numbers)), type=pa.int64()), pa.array(list(numbers), type=pa.int64())
    return pa.RecordBatch.from_arrays([keys, ids], names=[COLUMN, ID])


def batches_of(*counts: int) -> list[pa.RecordBatch]:
    """Rows 0, 1, .. in batches of some sizes."""
    ends = np.cumsum(counts).tolist()
    return [batch_of(range(end - count, end)) for count, end in zip(counts, ends, strict=True)]


class Frame(MessageFrame):
    """Messages whose partitions are lists of batches; no Spark is there."""

    def __init__(self, partitions: list[Partition]) -> None:
        super().__init__(None, SPOUT, "id")  # type: ignore[arg-type]
        object.__setattr__(self, "partitions", partitions)

    def keys_and_ids(self, cores: int) -> Any:
        return self.partitions  # type: ignore[attr-defined]

    def ids(self, cores: int) -> Any:
        return self.partitions  # type: ignore[attr-defined]

    def keys_of(self, ids: Iterable[MessageId]) -> dict[int, MessageId]:
        return {key_of(one): one for one in ids if isinstance(one, int)}


class Table:
    """What Spark would have made of the batches that tasks give."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._table = pa.Table.from_batches(batches)

    def collect(self) -> list[Any]:
        return [type("Row", (), row) for row in self._table.to_pylist()]

    def toArrow(self) -> pa.Table:
        return self._table


class Job:
    """A driver, and the workers of its passes, each with a connection of its own."""

    def __init__(self, open_acker: Callable[[], Acker]) -> None:
        self.open_acker, self.acker = open_acker, open_acker()
        self.policy = RetryPolicy(max_attempts=3, first_ms=0)

    def messages(self, *partitions: Partition, run: str = "run", acker: Acker | None = None) -> MessagesInRun:
        return MessagesInRun(Frame(list(partitions)), acker or self.acker, self.policy, run)

    def begin(self, run: str = "run") -> MessagesInRun:
        """A run of one partition, which attempts that the test makes are to make pending."""
        messages = self.messages(batches_of(ROWS), run=run)
        messages.take_lease()
        messages._progress.start(f"{run} begins", messages._about())
        return messages

    def attempt(self, batches: Partition, run: str = "run", acker: Acker | None = None) -> int:
        """An attempt at the partition."""
        none = np.zeros(0, dtype=np.int64)
        number = self.acker.spout_number(SPOUT)
        books = Books(StoreAddress.of(acker or self.acker), f"{run} begins", number, "id", 0, 3, none, [])
        return pending.PendingTask(books, 0).run(iter(batches))

    def end_pass(self, messages: MessagesInRun, rows: int = ROWS) -> None:
        """What the driver does when Spark says that the attempts are over."""
        messages._progress.rename(messages._run)
        messages._portions = messages._in_use(messages._progress.held(), {0: rows})

    def end_lease(self) -> None:
        self.acker.shards.ask(0, "DEL", self.acker.shards.keys[0].lease(self.acker.spout_number(SPOUT)))


@contextmanager
def tasks_here(open_acker: Callable[[], Acker]) -> Iterator[None]:
    """Tasks run in this process, one partition after the other, in small portions."""
    partition: list[int] = []

    def map_in_workers(frame: list[Partition], step: Any, schema: str, *, name: str) -> Table:
        given: list[pa.RecordBatch] = []
        for number, batches in enumerate(frame):
            partition[:] = [number]
            given += step(iter(batches))
        return Table(given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffled, "map_in_workers", map_in_workers)
        patch.setattr(shuffled, "cores_for", lambda frame: 1)
        patch.setattr(shuffled, "split_for", lambda frame, cores: nullcontext())
        patch.setattr(pending, "_partition", lambda: partition[0])
        patch.setattr(pending, "PORTION_ROWS", PORTION_ROWS)
        patch.setattr(StoreAddress, "acker", lambda address: open_acker())
        yield
