"""The threads of a run: they end together, and the first error ends them all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from redis_acker.clock import Clock, Signal
from redis_acker.errors import BadInput, traceback_of

Loop = tuple[str, Callable[[threading.Event], object]]
"""A thread: its name, and what it runs until the event is set."""

log = logging.getLogger(__name__)


class Threads:
    """Threads that belong together."""

    def __init__(self, clock: Clock) -> None:
        self.stop, self._clock = Signal(), clock
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None
        self._raised = False

    def start(self, loops: Sequence[Loop]) -> None:
        if self._threads:
            raise BadInput("This runner was started before, and a runner runs once: make another.")
        self._threads = [self._thread(*loop) for loop in loops]
        for thread in self._threads:
            thread.start()

    def replace(self, name: str, loop: Callable[[threading.Event], object]) -> None:
        """Starts a thread in place of one that hangs, which is not waited for any more."""
        thread = self._thread(name, loop)
        self._threads = [thread, *(one for one in self._threads if one.name != name)]
        thread.start()

    def join(self, timeout_s: float) -> list[str]:
        """Ends the threads and waits for them. Returns the names of those that do not end."""
        self.stop.set()
        deadline_s = self._clock.monotonic_s() + timeout_s
        for thread in self._threads:
            self._clock.join(thread, max(0.0, deadline_s - self._clock.monotonic_s()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def raise_error(self) -> None:
        """Raises the first error, once."""
        if self._error and not self._raised:
            self._raised = True
            raise self._error

    @property
    def has_started(self) -> bool:
        return bool(self._threads)

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def _thread(self, name: str, loop: Callable[[threading.Event], object]) -> threading.Thread:
        return self._clock.thread(name, partial(self._guard, name, loop))

    def _guard(self, name: str, loop: Callable[[threading.Event], object]) -> None:
        try:
            loop(self.stop)
        except BaseException as error:
            if self._error is None:
                self._error = error
            self.stop.set()
            log.error("%s ended with an error, and the run with it.\n%s", name, traceback_of(error))
