"""The right to drive a spout: one driver holds it at a time, and another takes over when that one is dead."""

from __future__ import annotations

import logging
import threading

from redis_acker.errors import MemoryFull, ServerUnavailable, SpoutTaken, escaped
from redis_acker.store.acker import Acker
from redis_acker.store.processes import is_gone, process_name

LEASE_MS = 10_000
"""A driver that has not renewed its lease for this long counts as dead, and another may take over. One that is seen to
be dead, because its process is gone, has no lease any more."""

_POLL_S = 0.1

log = logging.getLogger(__name__)


class Lease:
    """The driver renews it in its own loop, so a driver that hangs loses it."""

    def __init__(self, acker: Acker, spout: str, *, for_ms: int = LEASE_MS, who: str = "") -> None:
        """who: what the holder is, if not a driver."""
        self._shards, self._clock = acker.shards, acker.clock
        self._now_s = acker.clock.uptime_s
        self._spout = spout
        self._number = acker.spout_number(spout)
        self._for_ms = for_ms
        self._owner = who + process_name()
        self._renew_at_s = float("-inf")

    def take(self, *, wait: bool, stop: threading.Event) -> bool:
        """Takes the lease, at once if its holder is known to be dead. If another holds it, waits for its end or raises
        SpoutTaken. False if told to stop."""
        said = ""
        while not stop.is_set():
            try:
                holder, left_ms = self._ask()
                if holder != self._owner and is_gone(holder):
                    log.info("Spout %s was driven by %s, which is dead.", self._spout, escaped(holder))
                    holder, left_ms = self._ask(dead=holder)
            except (MemoryFull, ServerUnavailable) as error:
                if not wait:
                    raise
                reason, left_ms = str(error), self._for_ms
            else:
                if holder == self._owner:
                    return True
                reason = f"it is driven by {holder}"
                if not wait:
                    taken = SpoutTaken(
                        f"Spout {self._spout!r} is driven by {holder} (lease: {left_ms} ms to go): stop that driver, "
                        "wait for it, or use another spout name."
                    )
                    taken.holder = holder
                    raise taken
            if reason != said:
                log.info("The driver of spout %s waits for its turn: %s", self._spout, escaped(reason))
                said = reason
            self._clock.poll(stop, _POLL_S, left_ms / 1000)
        return False

    def renew(self) -> None:
        """Asks the server a few times per lease, however often it is called. Raises SpoutTaken if another has taken
        over: call it before everything that the other may do too, so that a driver that was paused stops in time."""
        if self._now_s() >= self._renew_at_s:
            self._keep()

    def begin(self, began: str) -> None:
        """Renews it, and notes beside it with what this driver begins: the note stays when the driver dies."""
        self._keep(began)

    def _keep(self, began: str = "") -> None:
        try:
            holder, _ = self._ask(began=began)
        except MemoryFull:
            return  # the server says so only if no other driver holds the lease
        if holder != self._owner:
            raise SpoutTaken(
                f"Spout {self._spout!r} was taken over by {holder} because this driver did not renew its lease for "
                f"{self._for_ms} ms: it stops here, and the other replays or completes what it was working on."
            )

    def due_in_s(self) -> float:
        """Time until renew() asks the server again."""
        return self._renew_at_s - self._now_s()

    def give_up(self, *, began: str = "") -> None:
        """began: what a driver that stops has noted when it began, so that nobody takes it for dead."""
        try:
            self._shards.unlease(self._number, self._owner, began)
        except ServerUnavailable as error:
            log.error(
                "The lease of spout %s could not be given up; it ends in %d ms: %s", self._spout, self._for_ms, error
            )

    def _ask(self, *, dead: str = "", began: str = "") -> tuple[str, int]:
        asked_s = self._now_s()
        holder, left_ms = self._shards.lease(self._number, self._owner, self._for_ms, dead=dead, began=began)
        self._renew_at_s = asked_s + self._for_ms / 3000
        return holder, left_ms
