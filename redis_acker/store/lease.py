"""The right to drive a spout: one driver holds it at a time, and another takes over when that one is dead."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

from redis_acker.errors import MemoryFull, ServerUnavailable, SpoutTaken, escaped
from redis_acker.store.acker import Acker

LEASE_MS = 10_000
"""A driver that has not renewed its lease for this long counts as dead, and another may take over."""

_POLL_S = 0.1

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Keeps counting while the machine sleeps, where the system has such a clock."""

log = logging.getLogger(__name__)


class Lease:
    """The driver renews it in its own loop, so a driver that hangs loses it."""

    def __init__(self, acker: Acker, spout: str, *, for_ms: int = LEASE_MS, who: str = "") -> None:
        """who: what the holder is, if not a driver."""
        self._shards = acker.shards
        self._spout = spout
        self._number = acker.spout_number(spout)
        self._for_ms = for_ms
        self._owner = f"{who}{socket.gethostname()} pid {os.getpid()} {os.urandom(4).hex()}"
        self._renew_at_s = float("-inf")

    def take(self, *, wait: bool, stop: threading.Event) -> bool:
        """Takes the lease. If another holds it, waits for its end or raises SpoutTaken. False if told to stop."""
        said = ""
        while not stop.is_set():
            try:
                holder, left_ms = self._ask()
            except (MemoryFull, ServerUnavailable) as error:
                if not wait:
                    raise
                reason = str(error)
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
            stop.wait(_POLL_S)
        return False

    def renew(self) -> None:
        """Asks the server a few times per lease, however often it is called. Raises SpoutTaken if another has taken
        over: call it before everything that the other may do too, so that a driver that was paused stops in time."""
        if _now_s() < self._renew_at_s:
            return
        try:
            holder, _ = self._ask()
        except MemoryFull:
            return  # the server says so only if no other driver holds the lease
        if holder != self._owner:
            raise SpoutTaken(
                f"Spout {self._spout!r} was taken over by {holder} because this driver did not renew its lease for "
                f"{self._for_ms} ms: it stops here, and the other replays or completes what it was working on."
            )

    def give_up(self) -> None:
        try:
            self._shards.unlease(self._number, self._owner)
        except ServerUnavailable as error:
            log.error(
                "The lease of spout %s could not be given up; it ends in %d ms: %s", self._spout, self._for_ms, error
            )

    def _ask(self) -> tuple[str, int]:
        asked_s = _now_s()
        holder, left_ms = self._shards.lease(self._number, self._owner, self._for_ms)
        self._renew_at_s = asked_s + self._for_ms / 3000
        return holder, left_ms


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)
