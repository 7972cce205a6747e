"""The right to drive a spout: one driver holds it at a time, and another takes over when that one is dead.

Holders are processes, named so that another on the same machine can tell whether one has certainly ended.
"""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import threading
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from redis_acker.errors import MemoryFull, ServerUnavailable, SpoutTaken, escaped
from redis_acker.store.acker import Acker

LEASE_MS = 10_000
"""A driver that has not renewed its lease for this long counts as dead, and another may take over. One that is seen to
be dead, because its process is gone, has no lease any more."""

_POLL_S = 0.1
_PROCESS = re.compile(r" pid ([1-9]\d{0,8}) [0-9a-f]{8} ([0-9a-f]{16})\.(\d{1,19})\Z")

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
        self._renew_at_s = -math.inf

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
                reason = f"it is driven by {escaped(holder)}"
                if not wait:
                    taken = SpoutTaken(
                        f"Spout {self._spout!r} is driven by {escaped(holder)} (lease: {left_ms} ms to go): stop that "
                        "driver, wait for it, or use another spout name."
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
            other = escaped(holder)
            raise SpoutTaken(
                f"Spout {self._spout!r} was taken over by {other} because this driver did not renew its lease for "
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


class NoLease(Lease):
    """For a driver without acker, which keeps nobody else from driving the spout."""

    def __init__(self) -> None:
        pass

    def renew(self) -> None:
        pass

    def due_in_s(self) -> float:
        return math.inf

    def give_up(self, *, began: str = "") -> None:
        pass


def process_name() -> str:
    """Host and process id for people, something random, and what is_gone() needs, where the system has it."""
    pid = os.getpid()
    name = f"{socket.gethostname()} pid {pid} {os.urandom(4).hex()}"
    place, stat = place_of(pid), _stat(pid)
    return f"{name} {place}.{_start(stat)}" if place and stat else name


def is_gone(name: str) -> bool:
    """Whether the process that had this name, with anything before it, has certainly ended. False if it runs, if it ran
    elsewhere, or if that cannot be known."""
    found = _PROCESS.search(name)
    if not found or found[2] != place_of(os.getpid()):
        return False
    pid, started = int(found[1]), found[3]
    try:
        os.kill(pid, 0)  # /proc may hide the processes of other users; this does not
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    stat = _stat(pid)
    if not stat:
        return False
    # Killed, and its parent has not asked for it yet. A first thread that has ended before others is one of several.
    is_corpse = stat[0] in ("Z", "X") and int(stat[17]) <= 1
    return is_corpse or _start(stat) != started


@lru_cache(maxsize=1)
def place_of(pid: int) -> str:
    """Where process ids and start times mean the same as here: host name, boot of the kernel, and namespaces of process
    ids and time. Empty if the system does not tell. pid: this process, so that a fork asks again."""
    try:
        if os.readlink("/proc/self") != str(pid):
            return ""  # /proc shows the processes of another namespace
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        pids = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return ""
    times = os.stat("/proc/self/ns/time").st_ino if os.path.exists("/proc/self/ns/time") else 0
    return blake2b(f"{socket.gethostname()} {boot} {pids} {times}".encode(), digest_size=8).hexdigest()


def _stat(pid: int) -> list[str]:
    """What the system says of a process from its state on, which is the third field; empty if it says nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the second field, in parentheses, may hold spaces


def _start(stat: list[str]) -> str:
    return stat[19]
