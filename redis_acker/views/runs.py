"""Spark runs in progress, and those that died."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from redis_acker.errors import UnreadableRun
from redis_acker.store.acker import Acker
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import FORMAT, PartitionProgress, RunAbout

MOST_PARTITIONS = 5_000
"""A run with more than that is left out where many runs are read again and again."""


@dataclass(frozen=True)
class RunView:
    """One run at one moment, by the clock of its server."""

    about: RunAbout
    partitions: list[PartitionProgress]
    """Those that tasks have begun, in all passes."""
    driver: str | None
    """Who holds the lease of the spout; None: nobody, so the driver of the run is gone."""
    forgotten_in_ms: int | None
    """None: never."""
    now_ms: int
    can_go_on: bool
    """Whether it is known what another run on the same input does not have to do again."""

    @property
    def age_ms(self) -> int:
        return max(0, self.now_ms - self.about.started_ms)

    @property
    def done(self) -> int:
        return sum(one.done for one in self.partitions)

    @property
    def failed(self) -> int:
        """Of those that are done."""
        return sum(one.failed for one in self.partitions)

    @property
    def in_work(self) -> int:
        return sum(one.rows for one in self.partitions)

    @property
    def seen(self) -> int:
        """Partitions of the input that a task has begun. Later passes are over a part of the same input."""
        return len(self._of_input)

    @property
    def ended(self) -> int:
        """Partitions of the input of which all rows are done."""
        return sum(one.has_ended for one in self._of_input)

    @property
    def _of_input(self) -> list[PartitionProgress]:
        return [one for one in self.partitions if one.place[0] == 0]

    @property
    def touched_ms(self) -> int | None:
        """When a worker was last at a portion."""
        return max((one.touched_ms for one in self.partitions), default=0) or None

    @property
    def per_second(self) -> float | None:
        """Messages done for each second up to the last touch. So a run that has died does not seem to get slower."""
        worked_ms = (self.touched_ms or 0) - self.about.started_ms
        return self.done * 1000 / worked_ms if worked_ms > 0 else None


def read_run(acker: Acker, spout: str) -> RunView | None:
    """The run of a spout. Raises UnreadableRun if this version cannot read it, and UnknownSpout."""
    number = acker.known_spouts(spout)[spout]
    progress = RunProgress(acker, number)
    about, partitions = progress.read()
    if about is None:
        return None
    if about.format != FORMAT:
        raise UnreadableRun(
            f"The run of spout {spout!r} was written by another version (format {about.format}, this one has "
            f"{FORMAT}): look at it with that version, or drop it with `redis-acker runs drop`."
        )
    left_ms = acker.shards.progress_left_ms(number)
    return RunView(
        about,
        partitions,
        acker.shards.lease_holder(number),
        left_ms if left_ms >= 0 else None,
        acker.shards.time_ms(0),
        bool(about.input) or progress.keeps_keys,
    )


def read_runs(acker: Acker, *, most: int) -> list[RunView]:
    """The first runs whose tasks keep the books: those that can be read, and are not too large to be read often."""
    spouts = acker.known_spouts()
    sizes = acker.shards.progress_sizes(spouts.values())
    found: list[RunView] = []
    for spout, size in zip(spouts, sizes, strict=True):
        if 0 < size <= MOST_PARTITIONS and len(found) < most:
            with suppress(UnreadableRun):
                if view := read_run(acker, spout):
                    found.append(view)
    return found
