"""The right to drive a spout: held by one driver at a time, taken over when that one is dead."""

from __future__ import annotations

import os
import socket
import threading
import time

from redis_acker.acker import Acker
from redis_acker.errors import AckerError
from redis_acker.transport import Command

LEASE_MS = 10_000
"""A driver that does not renew its lease for this long is dead, and another may take over."""

_POLL_S = 0.1


class SpoutTaken(AckerError):
    """Raised when another driver drives the spout, or has taken it over."""


class Lease:
    """Renewed in the loop of its driver, so that a driver that hangs loses it."""

    def __init__(self, acker: Acker, spout: str, *, for_ms: int = LEASE_MS) -> None:
        self._acker = acker
        self._spout = spout
        self._key = acker.shard_keys[0].lease(acker.spout_number(spout))
        self._for_ms = for_ms
        self._owner = f"{socket.gethostname()} pid {os.getpid()} {os.urandom(4).hex()}"
        self._renewed = float("-inf")

    def take(self, *, wait: bool, stop: threading.Event) -> None:
        """Takes the lease; waits for its end if another holds it, or raises SpoutTaken."""
        while not stop.is_set():
            holder, left_ms = self._ask()
            if holder == self._owner:
                return
            if not wait:
                raise SpoutTaken(
                    f"Spout {self._spout!r} is driven by {holder} (lease: {left_ms} ms to go): stop that driver, "
                    "wait for it, or use another spout name."
                )
            stop.wait(_POLL_S)

    def renew(self) -> None:
        """Called often; asks the server a few times per lease. Raises SpoutTaken if another has taken over."""
        if time.monotonic() - self._renewed < self._for_ms / 3000:
            return
        holder, _ = self._ask()
        if holder != self._owner:
            raise SpoutTaken(
                f"Spout {self._spout!r} was taken over by {holder} because this driver did not renew its lease for "
                f"{self._for_ms} ms: it stops here, and what it had in work is replayed or completed by the other."
            )

    def give_up(self) -> None:
        self._acker.transport.run_one(Command.call("unlease", 0, [self._key], [self._owner]))

    def _ask(self) -> tuple[str, int]:
        asked = time.monotonic()
        command = Command.call("lease", 0, [self._key], [self._owner, self._for_ms])
        holder, left_ms = self._acker.transport.run_one(command)
        self._renewed = asked
        return holder.decode(), left_ms
