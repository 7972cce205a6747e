"""What keeps a task going: its roots are kept alive while it works, and it waits for a store that is away."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from redis_acker import Acker
from redis_acker.errors import AckerError, MemoryFull, ServerUnavailable, TooLate
from redis_acker.store.ids import U64Array

STORE_AWAY_S = 600.0
"""How long a worker waits for a store that is away, before its task fails."""

STORE_AWAY = (ServerUnavailable, MemoryFull, TooLate)
"""After these errors a portion is begun again."""

GC_THRESHOLD = 100_000
"""New objects after which Python looks for garbage in cycles. The default, 700, means 14 times for every 10,000 rows
that pass a step: a third of the time of a simple step."""

_LONGEST_PAUSE_S = 2.0

Found = TypeVar("Found")

log = logging.getLogger(__name__)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """While a task is at work. The tasks of others, which the same worker runs later, find it as it was."""
    before, *others = gc.get_threshold()
    gc.set_threshold(max(GC_THRESHOLD, before), *others)
    try:
        yield
    finally:
        gc.set_threshold(before, *others)


@dataclass
class _Kept:
    """Roots that a worker is at."""

    roots: U64Array
    touch: Callable[[], object] | None
    due_s: float
    """When they are to be extended."""


class Keeper:
    """A context manager: inside it a thread extends the roots that a worker is at, and tells others so. One thread for
    the whole task: one for each portion took a worker 2% more time."""

    def __init__(self, acker: Acker, *, first_s: float | None = None) -> None:
        """first_s: after so much work roots are extended for the first time, if a quarter of the timeout is longer."""
        self._acker, self._every_s = acker, acker.settings.timeout_ms / 4000
        self._first_s = self._every_s if first_s is None else min(first_s, self._every_s)
        self._kept: _Kept | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Keeper:
        threading.Thread(target=self._loop, name="keeper", daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()

    @contextmanager
    def keeping(self, roots: U64Array, touch: Callable[[], object] | None = None) -> Iterator[None]:
        """Inside it the worker is at some roots. touch: called whenever they have been extended."""
        self._kept = _Kept(roots, touch, time.monotonic() + self._first_s)
        try:
            yield
        finally:
            self._kept = None

    def _loop(self) -> None:
        while not self._ended.wait(self._first_s / 4):
            kept, now_s = self._kept, time.monotonic()
            if kept is None or now_s < kept.due_s:
                continue
            kept.due_s = now_s + self._every_s
            try:
                self._acker.extend(kept.roots)
                if kept.touch:
                    kept.touch()
            except AckerError as error:
                log.warning("A worker cannot keep its roots alive; it tries again: %s", error)


class Patience:
    """Waits for a store that is away, but no longer than STORE_AWAY_S."""

    def __init__(self) -> None:
        self._pause_s = 0.05
        self._until_s: float | None = None

    def wait(self, error: AckerError) -> None:
        now_s = time.monotonic()
        if self._until_s is None:
            self._until_s = now_s + STORE_AWAY_S
            log.warning("A worker waits for the store: %s", error)
        if now_s > self._until_s:
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def patiently(ask: Callable[[], Found]) -> Found:
    """Asks the store something, again and again while it is away."""
    patience = Patience()
    while True:
        try:
            return ask()
        except STORE_AWAY as error:
            patience.wait(error)
