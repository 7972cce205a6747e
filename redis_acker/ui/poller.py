"""Reads the store for all pages together: ten open pages cost it no more than one."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redis_acker.errors import AckerError, ServerUnavailable, text_of
from redis_acker.store.stats import LATENCY_BOUNDS_MS, Latency
from redis_acker.views.failures import FailureGroup, read_failures
from redis_acker.views.overview import Overview, Rates, rates, read_overview
from redis_acker.views.runs import RunView, read_runs

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

EVERY_S = 2.0
"""Time between two readings."""

KEPT = 150
"""Readings that the charts show: five minutes."""

MOST_RUNS = 20
"""Spark runs that are read."""

LATENCY_OVER = 30
"""Readings over which latencies are counted: one minute."""

log = logging.getLogger(__name__)

NO_LATENCY = Latency((0,) * (len(LATENCY_BOUNDS_MS) + 1), 0)


@dataclass(frozen=True)
class Point:
    """One reading in the charts."""

    at_s: float
    pending: int
    speed: Rates


@dataclass(frozen=True)
class Reading:
    """What the pages show, all of them the same."""

    number: int = 0
    """Changes with every reading."""
    view: Overview | None = None
    """None before the first; the last one while the store is away."""
    read_s: float = 0.0
    """When the view was read, by this machine's clock since 1970."""
    latency: Latency = NO_LATENCY
    """Of all spouts, over the last minute."""
    failures: tuple[FailureGroup, ...] = ()
    runs: tuple[RunView, ...] = ()
    """Spark runs whose tasks keep the books."""
    points: tuple[Point, ...] = ()
    away: str | None = None
    """Why the store cannot be read; None while it can."""
    away_since_s: float = 0.0


class Poller:
    """Reads in a thread of its own, until stop()."""

    def __init__(self, open_acker: Callable[[], Acker], *, every_s: float = EVERY_S) -> None:
        self._open, self._every_s = open_acker, every_s
        self._points: deque[Point] = deque(maxlen=KEPT)
        self._latencies: deque[Latency] = deque(maxlen=LATENCY_OVER)
        self.reading = Reading()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="poller", daemon=True)

    @property
    def acker(self) -> Acker:
        """For what one page asks for: a root, a page of dead letters. Raises ServerUnavailable while it is away."""
        if self.reading.away:
            raise ServerUnavailable(self.reading.away)
        return self._open()

    def start(self) -> Poller:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.reading = self._read(self.reading)
            self._stop.wait(self._every_s)

    def _read(self, before: Reading) -> Reading:
        try:
            acker = self._open()
            view = read_overview(acker, most_blocks=0)
            failures = tuple(read_failures(acker, view.spouts))
            runs = tuple(read_runs(acker, most=MOST_RUNS))
        except Exception as error:  # whatever it is: if this thread ended, every page would show old numbers as live
            text = text_of(error, with_type=not isinstance(error, AckerError))
            if not before.away:
                log.error("The store cannot be read: %s", text)
            since_s = before.away_since_s if before.away else time.time()
            return replace(before, number=before.number + 1, away=text, away_since_s=since_s)
        if before.away:
            log.info("The store can be read again.")
        speeds = rates(before.view or view, view).values()
        self._points.append(Point(time.time(), view.pending, _sum(speeds)))
        self._latencies.append(_all(view))
        return Reading(
            before.number + 1,
            view,
            time.time(),
            self._latencies[-1].since(self._latencies[0]),
            failures,
            runs,
            tuple(self._points),
        )


def _sum(speeds: Collection[Rates]) -> Rates:
    return Rates(
        sum(one.initialised for one in speeds),
        sum(one.completed for one in speeds),
        sum(one.failed for one in speeds),
        sum(one.timeout for one in speeds),
    )


def _all(view: Overview) -> Latency:
    """The latencies of all spouts together."""
    columns = zip(NO_LATENCY.counts, *(one.latency.counts for one in view.spouts), strict=True)
    return Latency(tuple(map(sum, columns)), sum(one.latency.sum_ms for one in view.spouts))
