"""What keeps a task going: its roots are kept alive while it works, and it waits for a store that is away."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from redis_acker import Acker
from redis_acker.errors import AckerError, MemoryFull, ServerUnavailable, TooLate
from redis_acker.store.ids import U64Array
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import PENDING, Place, Portion

STORE_AWAY_S = 600.0
"""How long a worker waits for a store that is away, before its task fails."""

STORE_AWAY = (ServerUnavailable, MemoryFull, TooLate)
"""After these errors a portion is begun again."""

GC_THRESHOLD = 100_000
"""New objects after which Python looks for garbage in cycles. The default, 700, means 14 times for every 10,000 rows
that pass a step: a third of the time of a simple step."""

_LONGEST_PAUSE_S = 2.0

log = logging.getLogger(__name__)


SOON_S = 1.0
"""After so much work, or a quarter of the timeout, roots are extended for the first time. Not at once: a row that ends
its worker whenever it is delivered must time out in the end."""


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """While a task is at work. The tasks of others, which the same worker runs later, find it as it was."""
    before, *others = gc.get_threshold()
    gc.set_threshold(max(GC_THRESHOLD, before), *others)
    try:
        yield
    finally:
        gc.set_threshold(before, *others)


@contextmanager
def keeping_alive(acker: Acker, roots: U64Array, touch: Callable[[], object] | None = None) -> Iterator[None]:
    """A thread that extends roots while a worker is at them, and tells others so."""
    every_s, ended = acker.settings.timeout_ms / 4000, threading.Event()

    def keep() -> None:
        wait_s = every_s if touch else min(every_s, SOON_S)
        while not ended.wait(wait_s):
            wait_s = every_s
            try:
                acker.extend(roots)
                if touch:
                    touch()
            except AckerError as error:
                log.warning("A worker cannot keep its roots alive; it tries again: %s", error)

    thread = threading.Thread(target=keep, name="keeper", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


class Keeper:
    """Keeps the roots of a portion alive while a worker is at it."""

    def __init__(self, acker: Acker, progress: RunProgress) -> None:
        self._acker, self._progress = acker, progress

    def keeping(self, place: Place, portion: Portion, roots: U64Array) -> AbstractContextManager[None]:
        return keeping_alive(self._acker, roots, lambda: self._progress.reach(place, portion, PENDING))


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
