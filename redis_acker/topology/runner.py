"""What runners have in common: spouts under their drivers, threads that end together, waiting and counting."""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

from redis_acker.components.component import ComponentCounters
from redis_acker.components.spout import Spout
from redis_acker.driver.deaths import Trials
from redis_acker.driver.driver import SpoutDriver
from redis_acker.driver.options import DriverOptions, clock_of
from redis_acker.errors import AckerError, BadInput, BadTopology
from redis_acker.store.acker import Acker
from redis_acker.store.ids import U64Array
from redis_acker.store.rotator import Rotator
from redis_acker.store.streams import Cause
from redis_acker.topology.routing import TaskRouter, TupleQueue
from redis_acker.topology.threads import Loop, Threads
from redis_acker.topology.topology import Topology

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

EXTENDS_PER_TIMEOUT = 4
"""How often within a timeout the roots in work are extended. What waits in a runner that lives does not time out."""

STOP_AFTER_S = 30.0
"""How long stop() waits for bolts if tracking is off; otherwise the timeout of roots says it."""

_IDLE_S = 0.01

log = logging.getLogger(__name__)


class Runner(ABC):
    """Runs the spouts of a topology in this process, each task under a driver in a thread of its own, with a rotator
    beside them. Subclasses run the bolts."""

    def __init__(
        self,
        topology: Topology,
        acker: Acker | None,
        queues: Mapping[str, Sequence[TupleQueue]],
        **options: Unpack[DriverOptions],
    ) -> None:
        """queues: those of all bolts, one for each task."""
        unknown = sorted(options.keys() - DriverOptions.__optional_keys__)
        if unknown:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {unknown[0]!r}")
        self._acker = acker
        self._clock = clock_of(acker, options.get("clock"))
        self._timeout_s = _timeout_s(topology, acker) if acker else 0.0
        self._threads, self._was_stopped = Threads(self._clock), False
        self._live_roots: set[int] = set()
        """The roots that are pending, as far as the drivers know."""
        self._spouts = [task for spec in topology.spouts for task in spec.tasks]
        trials = Trials()
        self._spout_routers = [TaskRouter(topology, context, queues) for context in self._spouts]
        self.drivers = [
            SpoutDriver(
                topology.components[context.component].copy_for_task(Spout),
                acker,
                router,
                name=f"{topology.name}/{context.component}/{context.task}",
                context=context,
                holders=self._holders,
                untracked=self._untracked,
                live_roots=self._live_roots,
                trials=trials,
                **options,
            )
            for context, router in zip(self._spouts, self._spout_routers, strict=True)
        ]
        self.spouts: dict[str, list[SpoutDriver]] = {spec.name: [] for spec in topology.spouts}
        """The tasks of each spout. Each has its copy of the spout as `spout`."""
        for context, driver in zip(self._spouts, self.drivers, strict=True):
            self.spouts[context.component].append(driver)
        self._threads.stop.wakers.append(self._wake_drivers)

    # -- what subclasses add ---------------------------------------------------------------------------------------

    @abstractmethod
    def _loops(self) -> list[Loop]:
        """The threads that run the bolts."""

    @abstractmethod
    def _delivered(self) -> int:
        """How many tuples have been delivered to bolts."""

    @abstractmethod
    def _finished(self) -> int:
        """How many of these deliveries the bolts are done with."""

    @abstractmethod
    def _bolt_counters(self) -> Iterable[tuple[str, ComponentCounters]]:
        """What bolts have done, in any number of parts."""

    @abstractmethod
    def _roots_in_work(self, timeout_s: float) -> Sequence[int] | U64Array:
        """Roots of tuples that wait here or that bolts work on, unless they hang. Asked for often within a timeout."""

    @abstractmethod
    def _untracked(self) -> int:
        """How many tuples in no tree wait here."""

    def _stop_after_s(self) -> float:
        """How long stop() waits, unless it is told otherwise."""
        return self._timeout_s if self._acker else STOP_AFTER_S

    def _holders(self, roots: Collection[int]) -> dict[int, Cause]:
        """For roots that timed out: which component has a tuple of it, where, and for how long, if that is known."""
        return {}

    def _doing(self, thread: str) -> str:
        """What a thread does that does not end."""
        return "it has not come back from what it calls"

    # -- what users call -------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts the threads."""
        loops = self._loops()
        if self._acker:
            loops.append(("rotator", Rotator(self._acker).run))
            loops.append(("extend", partial(self._extend_often, self._acker)))
        self._threads.start([*loops, *((driver.name, driver.run) for driver in self.drivers)])
        return self

    def wait_until_idle(self, *, timeout_s: float | None = None) -> bool:
        """Waits until the sources are exhausted and every message is completed or dead. False after timeout_s, or if
        the run ends earlier. Raises the error that ended the run."""
        if not self._threads.has_started:
            raise BadInput(
                "This runner was not started, so it never becomes idle: use it in a `with` block, or start()."
            )
        _check_timeout(timeout_s)
        deadline = math.inf if timeout_s is None else self._clock.monotonic_s() + timeout_s
        while True:
            self._threads.raise_error()
            if not self._threads.has_failed and self._is_idle():
                return True
            left_s = deadline - self._clock.monotonic_s()
            if self._threads.stop.is_set() or left_s <= 0:
                return False
            self._clock.poll(self._threads.stop, _IDLE_S, left_s)

    def pause(self, spout: str) -> None:
        """Pauses all tasks of a spout: no new messages and no replays; what is pending goes on. The store keeps it, so
        that it also holds for the next run, until resume() or `redis-acker resume`."""
        for driver in self._drivers_of(spout):
            driver.switch.pause()

    def resume(self, spout: str) -> None:
        for driver in self._drivers_of(spout):
            driver.switch.resume()

    def _drivers_of(self, spout: str) -> list[SpoutDriver]:
        pairs = zip(self._spouts, self.drivers, strict=True)
        found = [driver for context, driver in pairs if spout in (context.component, driver.name)]
        if not found:
            names = sorted({context.component for context in self._spouts})
            raise BadInput(f"This topology has no spout {spout!r}: it has {names}.")
        return found

    def counters(self) -> dict[str, ComponentCounters]:
        """What each component has done so far."""
        found: defaultdict[str, ComponentCounters] = defaultdict(ComponentCounters)
        for component, counters in self._bolt_counters():
            found[component] += counters
        for context, driver in zip(self._spouts, self.drivers, strict=True):
            found[context.component] += driver.counters
        return dict(found)

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stops the run. Unfinished messages stay pending in the store. Raises the error that ended the run, unless it
        was raised before.

        A bolt that does not come back within timeout_s is left behind, and the log says which; False then. By default
        it has as long as roots have until they time out."""
        _check_timeout(timeout_s)
        ended, self._was_stopped = self._end(timeout_s), True
        self._threads.raise_error()
        return ended

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, exc_type: object, *exc_info: object) -> None:
        if not self._was_stopped:  # whoever called stop() has waited already, and left behind what did not end
            self._end(None)
        if exc_type is None:
            self._threads.raise_error()

    def _end(self, timeout_s: float | None) -> bool:
        timeout_s = self._stop_after_s() if timeout_s is None else timeout_s
        left = self._threads.join(timeout_s)
        for name in left:
            log.error("%s does not end within %g s and is left behind: %s.", name, timeout_s, self._doing(name))
        return not left

    def _wake_drivers(self) -> None:
        for driver in self.drivers:
            driver.wake()

    def _extend_often(self, acker: Acker, stop: threading.Event) -> None:
        """Keeps messages from timing out while they wait in this process, or bolts work on them."""
        while not self._clock.wait_for(stop, self._timeout_s / EXTENDS_PER_TIMEOUT):
            try:
                roots = self._roots_in_work(self._timeout_s)
                if len(roots):
                    acker.extend(roots)
            except AckerError as error:
                log.error("Unfinished messages could not be extended and may time out: %s", error)

    def _is_idle(self) -> bool:
        if not all(driver.is_idle() for driver in self.drivers):
            return False  # by far the cheapest to find out
        # In this order. Both counts only grow, and a delivery is counted before it is finished: if they are equal, no
        # tuple was under way while the drivers were asked.
        finished = self._finished()
        idle = all(driver.is_idle() for driver in self.drivers)
        return idle and finished == self._delivered()


def check_parts(topology: Any, acker: Any) -> None:
    """Raises an error for what no runner can work with, before anything is made of it."""
    if not isinstance(topology, Topology):
        raise BadTopology(f"A runner runs what build() of a TopologyBuilder returns, not {topology!r:.200}.")
    if not isinstance(acker, (Acker, NoneType)):
        raise BadInput(f"The acker of a runner is an Acker, or None to switch tracking off, not {acker!r:.200}.")


def _check_timeout(timeout_s: Any) -> None:
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and timeout_s >= 0):
        raise BadInput(f"timeout_s is a number of seconds, 0 or more, not {timeout_s!r}.")


def _timeout_s(topology: Topology, acker: Acker) -> float:
    """That of the topology, or else of the namespace."""
    longest_ms = acker.settings.timeout_ms
    if topology.timeout_ms is not None and topology.timeout_ms > longest_ms:
        raise BadTopology(
            f"timeout_ms={topology.timeout_ms} of topology {topology.name!r} is longer than the {longest_ms} ms of "
            f"namespace {acker.namespace!r}, after which the store fails a message anyway: choose less, or a namespace "
            "with a longer timeout."
        )
    return (topology.timeout_ms or longest_ms) / 1000
