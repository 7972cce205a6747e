"""Spark runs in a namespace, as their tasks would have left them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from redis_acker import Acker
from redis_acker.store.lease import Lease
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import SUNK, Place, RunAbout, field_of

WHERE = "node-7 pid 4711"
AGE_MS = 2 * 3600 * 1000


class StoredRun(RunProgress):
    """A run that the test drives in place of Spark."""

    def __init__(
        self, acker: Acker, spout: str = "orders", *, partitions: int = 4, age_ms: int = AGE_MS, read: str = "input"
    ) -> None:
        super().__init__(acker, acker.spout_number(spout))
        self._of = acker, spout
        self.started_ms = acker.shards.time_ms(0) - age_ms
        self.start("run", RunAbout(spout, self.started_ms, WHERE, partitions, read, "steps"))

    def work(self, partition: int, done: int, in_work: int, *, pass_number: int = 0, failed: int = 0) -> None:
        """Does rows of a partition, of which some fail, and begins more."""
        place = Place(field_of(pass_number, partition), 0, 0)
        if done:
            assert self.reach(place, self.begin(place, done, 1), SUNK, failed) == "kept"
        assert self.begin(Place(place.partition, done, 1 if done else 0), in_work, 2).state == "new"

    def finish(self, partition: int, rows: int, *, pass_number: int = 0, failed: int = 0) -> None:
        """Does all rows of a partition."""
        place = Place(field_of(pass_number, partition), 0, 0)
        assert self.reach(place, self.begin(place, rows, 1), SUNK, failed) == "kept"
        assert self.begin(Place(place.partition, rows, 1), 0, 1).state == "done"

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Somebody holds the lease."""
        acker, spout = self._of
        lease = Lease(acker, spout, for_ms=60_000)
        assert lease.take(wait=False, stop=Event())
        yield
        lease.give_up()
