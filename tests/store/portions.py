"""A run on a clock that the test moves, and rows that are the same whenever they are read."""

from __future__ import annotations

from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import PartitionProgress, Place, Portion, RunAbout, field_of
from tests.lua.ledger import SPOUT, TIMEOUT_MS, Ledger

PARTITION = field_of(0, 3)
HALF_MS = TIMEOUT_MS // 2
"""After which roots that nobody has been at are given up."""


def sum_of(rows: int) -> int:
    """The checksum of the first rows of a partition that is read again and again."""
    return rows * 0x9E3779B97F4A7C15 % (1 << 64)


def after(rows: int, partition: str = PARTITION) -> Place:
    return Place(partition, rows, sum_of(rows))


class Run(RunProgress):
    """A run on a clock that the test moves."""

    def __init__(self, ledger: Ledger, name: str = "run", spout: str = SPOUT) -> None:
        super().__init__(ledger.acker, ledger.acker.spout_number(spout))
        self.ledger, self.spout = ledger, spout
        self.start(name, RunAbout(spout, ledger.clock.now_ms, "here pid 1", 8, "input", "steps"))

    def next(self, done: int, rows: int, partition: str = PARTITION) -> Portion:
        """Begins so many rows after those that are done."""
        return self.begin(after(done, partition), rows, sum_of(done + rows))

    def partition(self) -> PartitionProgress:
        [found] = self.read()[1]
        return found

    def done_and_failed(self) -> tuple[int, int]:
        found = self.partition()
        return found.done, found.failed

    def wait(self, ms: int) -> None:
        self.ledger.clock.advance(ms)


def roots(run: Run, portion: Portion) -> list[int]:
    found: list[int] = run.roots_of(portion.first, portion.rows).tolist()
    return found
