"""A time that passes when a test says so. Between two moments, everything that can happen has happened."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from redis_acker.clock import Signal
from redis_acker.errors import BadInput, SimulationStuck

START_MS = 1_800_000_000_000
"""The time at which every simulation begins: 15 January 2027, 08:00 UTC."""

PATIENCE_S = 30.0
"""How long, in real time, threads may be at work before time moves on."""

_START_S = 1000.0  # of the monotonic clock: small, so that differences are exact, and not zero
_AGAIN_S = 0.1  # of patience after it was lost
_LOOK_EVERY_S = 0.001
"""How often, in real time, an event is looked at that does not say when it is set."""


@dataclass(eq=False)
class _Pause:
    """What a thread waits for: an event, a time, or, if it polls, any change of time."""

    event: threading.Event
    until_ms: float
    polls: bool
    woken: threading.Condition
    is_over: bool = False

    def can_end(self) -> bool:
        return self.is_over or self.event.is_set()


class SimulatedTime:
    """A clock that stands still while the test works, and moves from one thing that is due to the next when it is told
    to. It belongs to the thread that made it: other threads wait by it, and only this one lets time pass.

    Threads of runners and rotators take part in it. A thread that a bolt starts itself does if thread() made it.
    """

    def __init__(self) -> None:
        self.patience_s = PATIENCE_S
        """How long, in real time, threads may be at work before SimulationStuck is raised."""
        self.followers: list[Callable[[], None]] = []
        """Called whenever time has moved, before anything that is due happens."""
        self._test = threading.current_thread()
        self._now_ms = START_MS
        self._lock = threading.RLock()
        self._settled = threading.Condition(self._lock)
        self._at_work: set[threading.Thread] = set()
        """Threads that take part and have not ended."""
        self._pauses: dict[threading.Thread, _Pause] = {}
        """What threads wait for, in the order in which they began to."""
        self._heard: set[threading.Event] = set()
        self._deeds = 0
        """Counts what may lead to something else at the same time."""
        self._never, self._is_stuck = Signal(), False

    # -- what a test calls -------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Lets time pass. Everything that is due meanwhile happens at its time and in its order, and everything that
        comes of it. Returns when there is nothing left to do until more time passes."""
        until_ms = self._after_ms(_checked(seconds, "Time advances by", finite=True))
        self.wait()
        while self._now_ms < until_ms:
            self._move(min(until_ms, self._next_ms()))

    def wait(self) -> None:
        """Waits until everything has happened that can happen without time passing: sources are empty or max_pending
        is reached, queues are empty, no bolt is at work, acks are sent and final events are read."""
        if threading.current_thread() is not self._test:
            raise BadInput(
                f"{threading.current_thread().name} cannot let simulated time pass, only the thread of the test can: "
                "use sleep() to wait in a bolt."
            )
        self._settle()
        deeds = -1
        while deeds != self._deeds:
            deeds = self._deeds
            while due := self._due():
                self._end(due)
            for one in self._polls():
                self._end(one)

    def sleep(self, seconds: float) -> None:
        """Waits until so much time has passed: for a bolt that is slow or, with math.inf, hangs. In the thread of the
        test it is the same as advance()."""
        self.wait_for(self._never, _checked(seconds, "A sleep takes", finite=False))

    @property
    def elapsed_s(self) -> float:
        """The time that has passed since the beginning."""
        return (self._now_ms - START_MS) / 1000

    def __deepcopy__(self, memo: object) -> SimulatedTime:
        return self  # copies of a bolt for several tasks share it

    def __reduce__(self) -> NoReturn:
        raise BadInput("Simulated time passes in one process, so it cannot be pickled: use LocalRunner.")

    # -- Clock -------------------------------------------------------------------------------------------------------

    def time_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return _START_S + self.elapsed_s

    uptime_s = monotonic_s

    def wait_for(self, event: threading.Event, timeout_s: float | None) -> bool:
        until_ms = self._after_ms(math.inf if timeout_s is None else timeout_s)
        if threading.current_thread() is self._test:
            return self._pass(event.is_set, until_ms)
        return self._pause(event, until_ms, polls=False)

    def poll(self, event: threading.Event, pause_s: float, within_s: float = math.inf) -> bool:
        if threading.current_thread() is self._test:
            deeds = self._deeds
            self.wait()
            if deeds == self._deeds and not event.is_set():
                self._move(min(self._next_ms(), self._after_ms(within_s)))
            return event.is_set()
        if pause_s <= 0:
            with self._lock:
                self._deeds += 1
            return event.is_set()
        return self._pause(event, self._after_ms(within_s), polls=True)

    def thread(self, name: str, target: Callable[[], object]) -> threading.Thread:
        return _Thread(self, name, target)

    def join(self, thread: threading.Thread, timeout_s: float | None) -> None:
        if threading.current_thread() is self._test:
            until_ms = self._after_ms(math.inf if timeout_s is None else timeout_s)
            try:
                if not self._pass(lambda: thread not in self._at_work, until_ms):
                    return
            except SimulationStuck:  # whoever ends threads waits no longer for one that is busy for ever
                timeout_s = 0
        thread.join(timeout_s)

    # -- how time moves ----------------------------------------------------------------------------------------------

    def _after_ms(self, seconds: float) -> float:
        # Rounded first: 0.07 * 1000 is more than 70.
        return self._now_ms + (math.ceil(round(seconds * 1000, 6)) if seconds < math.inf else math.inf)

    def _pass(self, is_over: Callable[[], bool], until_ms: float) -> bool:
        """Lets time pass until a condition holds, at most until then. Returns whether it holds."""
        self.wait()
        while not is_over() and self._now_ms < until_ms:
            self._move(min(until_ms, self._next_ms()))
        return is_over()

    def _move(self, to_ms: float) -> None:
        if to_ms == math.inf:
            raise SimulationStuck("Nothing is due at any time, so what the test waits for will never happen.")
        self._now_ms = int(to_ms)
        for follow in self.followers:
            follow()
        self.wait()

    def _next_ms(self) -> float:
        with self._lock:
            return min((one.until_ms for one in self._pauses.values()), default=math.inf)

    def _due(self) -> _Pause | None:
        """The pause that ends first of those whose time has come."""
        with self._lock:
            first = min(self._pauses.values(), key=lambda one: one.until_ms, default=None)
        return first if first and first.until_ms <= self._now_ms else None

    def _polls(self) -> list[_Pause]:
        with self._lock:
            return [one for one in self._pauses.values() if one.polls]

    def _end(self, pause: _Pause) -> None:
        """Ends a pause, and waits until all threads pause again. One that has ended meanwhile stays so."""
        with self._lock:
            pause.is_over = True
            pause.woken.notify()
        self._settle()

    def _settle(self) -> None:
        """Waits until all threads pause, and nothing but time can end a pause."""
        deadline_s = time.monotonic() + (min(_AGAIN_S, self.patience_s) if self._is_stuck else self.patience_s)
        with self._lock:
            while busy := self._busy():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    self._is_stuck = True
                    raise SimulationStuck(
                        f"Time cannot move on: {', '.join(busy)} did not pause within {self.patience_s:g} s. Wait with "
                        "sleep() of the simulated time; for heavy work raise its patience_s."
                    )
                self._settled.wait(left_s)
        self._is_stuck = False

    def _busy(self) -> list[str]:
        """The threads that do not pause, or are about to go on."""
        running = self._at_work - self._pauses.keys()
        return sorted({one.name for one in running} | {one.name for one, it in self._pauses.items() if it.can_end()})

    # -- what the other threads do -----------------------------------------------------------------------------------

    def _pause(self, event: threading.Event, until_ms: float, *, polls: bool) -> bool:
        me = threading.current_thread()
        with self._lock:
            self._listen(event)
            pause = self._pauses[me] = _Pause(event, until_ms, polls, threading.Condition(self._lock))
            self._settled.notify_all()
            while not pause.can_end():
                pause.woken.wait(None if isinstance(event, Signal) else _LOOK_EVERY_S)
            del self._pauses[me]
            self._deeds += event.is_set()
        return event.is_set()

    def _listen(self, event: threading.Event) -> None:
        if isinstance(event, Signal) and event not in self._heard:
            self._heard.add(event)
            event.wakers.append(partial(self._wake, event))

    def _wake(self, event: threading.Event) -> None:
        with self._lock:
            for pause in self._pauses.values():
                if pause.event is event:
                    pause.woken.notify()

    def _begin(self, thread: threading.Thread) -> None:
        with self._lock:
            self._at_work.add(thread)
            self._deeds += 1

    def _leave(self, thread: threading.Thread) -> None:
        with self._lock:
            self._at_work.discard(thread)
            self._deeds += 1
            self._settled.notify_all()


def _checked(seconds: float, what: str, *, finite: bool) -> float:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not (is_number and seconds >= 0 and (seconds < math.inf or not finite)):
        raise BadInput(f"{what} a number of seconds, 0 or more, not {seconds!r}.")
    return seconds


class _Thread(threading.Thread):
    """Takes part in simulated time from its start to its end."""

    def __init__(self, simulated: SimulatedTime, name: str, target: Callable[[], object]) -> None:
        super().__init__(name=name, daemon=True)
        self._simulated, self._work = simulated, target

    def start(self) -> None:
        self._simulated._begin(self)
        super().start()

    def run(self) -> None:
        try:
            self._work()
        finally:
            self._simulated._leave(self)
