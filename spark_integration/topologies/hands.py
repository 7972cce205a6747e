"""The tuple in the hands of a bolt, in an executor: what is noted about it, and how a hang is noticed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, Queue
from typing import TypeVar

from redis_acker.components.tuples import Tuple
from redis_acker.errors import AckerError
from redis_acker.store.acker import Acker
from redis_acker.topology.local import HANDS_SHARE, HANGS_AFTER
from spark_integration.errors import BoltHangs
from spark_integration.topologies.acks import when_it_is_there
from spark_integration.topologies.notes import Note, Notes, NoteState

LOOKS_PER_TIMEOUT = 8
"""How often within a timeout it is looked whether a bolt hangs."""

LONGEST = 3
"""Timeouts after which a bolt hangs even if its tuple has not timed out: nobody rotates then."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class Hands:
    """What one attempt at a task is at. One thread works, another looks on."""

    def __init__(self, acker: Acker, notes: Notes, component: str, place: str, *, is_careful: bool) -> None:
        """place: where its note is; no other attempt has it. is_careful: it notes what it is at before it begins, so
        that it is known should the worker die of it."""
        self._acker, self._notes, self._component, self._place = acker, notes, component, place
        self._is_careful = is_careful
        self.timeout_s = acker.settings.timeout_ms / 1000
        self._lock = threading.Lock()
        self._key, self._phase = b"", ""
        self._tuples: list[Tuple] = []
        self._state: NoteState | None = None
        self._since_s = 0.0
        self._is_late = False
        """Whether the log says that a phase does not end."""

    def take(self, key: bytes, tuples: list[Tuple], phase: str = "") -> None:
        """Work begins: on a tuple, or on a phase of the bolt's life, on which all its tuples depend."""
        with self._lock:
            self._key, self._tuples, self._phase, self._since_s = key, tuples, phase, time.monotonic()
            self._is_late = False
            if self._is_careful:
                when_it_is_there(lambda: self._note("begun"))

    def put_down(self) -> None:
        """Work has ended."""
        with self._lock:
            self._revive()
            self._key, self._tuples = b"", []

    def sign_of_life(self) -> None:
        """The bolt is still at it, and well."""
        with self._lock:
            self._revive()
            self._since_s = time.monotonic()

    def look(self) -> None:
        """Raises BoltHangs if what is in hand has timed out, after it has said so to those who come after."""
        with self._lock:
            at_work_s = time.monotonic() - self._since_s
            if not self._key or at_work_s < self.timeout_s * HANDS_SHARE:
                return
            if self._phase:
                if at_work_s >= self.timeout_s and not self._is_late:
                    self._is_late = True
                    log.error("Bolt %s is in %s for %.1f s.", self._component, self._phase, at_work_s)
                return
            try:
                if self._state != "long":
                    self._note("long")
                    self._acker.extend(_roots(self._tuples))  # the last time: it has a whole timeout from here
                if at_work_s < self.timeout_s or not self._is_over(at_work_s):
                    return
                self._note("given up")
            except AckerError as error:
                log.warning("A task cannot tell the store what it works on, and tries again: %s", error)
                return
        raise BoltHangs(
            f"Bolt {self._component!r} hangs: it has worked on {self._tuples[0]} for {at_work_s:.1f} s. Its task is "
            "given up, and tried again without this tuple."
        )

    def _is_over(self, at_work_s: float) -> bool:
        roots = _roots(self._tuples)
        if at_work_s >= (LONGEST if roots else HANGS_AFTER) * self.timeout_s:
            return True
        return bool(roots) and all(self._acker.inspect(root).state != "pending" for root in roots)

    def _revive(self) -> None:
        if self._state is None:
            return
        try:
            if self._state == "long":
                # The driver has let it be for a while, and looks again only after a part of the timeout.
                self._acker.extend(_roots(self._tuples))
            self._notes.remove([self._place])
        except AckerError as error:
            log.warning("A task cannot keep its messages alive: %s", error)
        self._state = None

    def _note(self, state: NoteState) -> None:
        at_ms = int(1000 * (time.time() - time.monotonic() + self._since_s))
        what = self._phase or str(self._tuples[0])
        self._notes.put(self._place, Note(state, self._key.hex(), _roots(self._tuples), self._component, what, at_ms))
        self._state = state


def watched(work: Iterator[T], look: Callable[[], None], every_s: float) -> Iterator[T]:
    """What the iterator gives, which runs in a thread of its own. Whenever it has given nothing for every_s, look() is
    called; if that raises an error the thread is left behind, and Spark ends this process."""
    given: Queue[tuple[list[T], BaseException | None]] = Queue(maxsize=2)

    def run() -> None:
        try:
            for one in work:
                given.put(([one], None))
            given.put(([], None))
        except BaseException as error:
            given.put(([], error))

    threading.Thread(target=run, name="bolt", daemon=True).start()
    while True:
        try:
            found, error = given.get(timeout=every_s)
        except Empty:
            look()
            continue
        if error:
            raise error
        if not found:
            return
        yield from found


def _roots(tuples: list[Tuple]) -> list[int]:
    return sorted({root for tup in tuples for root in tup.anchors})
