"""The right to drive a spout: held by one driver at a time, taken over when that one is dead."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

from redis_acker.acker import Acker
from redis_acker.errors import AckerError, MemoryFull, ServerUnavailable
from redis_acker.transport import Command

LEASE_MS = 10_000
"""A driver that does not renew its lease for this long is dead, and another may take over."""

_POLL_S = 0.1

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while the machine sleeps, where there is one."""

log = logging.getLogger(__name__)


class SpoutTaken(AckerError):
    """Raised when another driver drives the spout, or has taken it over."""

    holder: str = ""
    """Who drives it now."""


class Lease:
    """Renewed in the loop of its driver, so that a driver that hangs loses it."""

    def __init__(self, acker: Acker, spout: str, *, for_ms: int = LEASE_MS, who: str = "") -> None:
        """who: what the holder is, if it is no driver."""
        self._acker = acker
        self._spout = spout
        self._key = acker.shard_keys[0].lease(acker.spout_number(spout))
        self._for_ms = for_ms
        self._owner = f"{who}{socket.gethostname()} pid {os.getpid()} {os.urandom(4).hex()}"
        self._renewed_s = float("-inf")

    def take(self, *, wait: bool, stop: threading.Event) -> bool:
        """Takes the lease; waits for its end if another holds it, or raises SpoutTaken. False if told to stop."""
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
                log.info("The driver of spout %s waits for its turn: %s", self._spout, reason)
                said = reason
            stop.wait(_POLL_S)
        return False

    def renew(self) -> None:
        """Asks the server a few times per lease, however often it is called. Raises SpoutTaken if another has taken
        over. Called before everything that the other could also do, so that a driver that was paused stops there."""
        if _now_s() - self._renewed_s < self._for_ms / 3000:
            return
        try:
            holder, _ = self._ask()
        except MemoryFull:
            return  # which the server says only if no other driver holds it
        if holder != self._owner:
            raise SpoutTaken(
                f"Spout {self._spout!r} was taken over by {holder} because this driver did not renew its lease for "
                f"{self._for_ms} ms: it stops here, and what it had in work is replayed or completed by the other."
            )

    def give_up(self) -> None:
        try:
            self._acker.transport.run_one(Command.call("unlease", 0, [self._key], [self._owner]))
        except ServerUnavailable as error:
            log.error("The lease of spout %s is not given up and ends in %d ms: %s", self._spout, self._for_ms, error)

    def _ask(self) -> tuple[str, int]:
        asked_s = _now_s()
        command = Command.call("lease", 0, [self._key], [self._owner, self._for_ms])
        holder, left_ms = self._acker.transport.run_one(command)
        self._renewed_s = asked_s
        return holder.decode(), left_ms


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)
