"""Threads that belong together: the first error ends them all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from redis_acker.errors import BadInput


class Threads:
    """Loops that run until stop is set."""

    def __init__(self, log: logging.Logger) -> None:
        """log: the runner's own, which says which loop ended with an error."""
        self._log = log
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None
        self._raised = False

    def start(self, loops: Sequence[tuple[str, Callable[[threading.Event], object]]]) -> None:
        if self._threads:
            raise BadInput("This runner was started before, and a runner runs once: make another.")
        self._threads = [
            threading.Thread(target=self._guard, args=(name, loop), name=name, daemon=True) for name, loop in loops
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Ends the loops, and waits for them."""
        self.stop.set()
        for thread in self._threads:
            thread.join()

    def raise_error(self) -> None:
        """Raises the first error, once."""
        if self._error and not self._raised:
            self._raised = True
            raise self._error

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def _guard(self, name: str, loop: Callable[[threading.Event], object]) -> None:
        try:
            loop(self.stop)
        except BaseException as error:
            self._log.exception("%s ended with an error, and the run with it.", name)
            if self._error is None:
                self._error = error
            self.stop.set()
