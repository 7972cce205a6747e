"""Names a process so that another on the same machine can tell whether it has certainly ended."""

from __future__ import annotations

import os
import re
import socket
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

_PROCESS = re.compile(r" pid ([1-9]\d{0,8}) [0-9a-f]{8} ([0-9a-f]{16})\.(\d{1,19})\Z")


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
