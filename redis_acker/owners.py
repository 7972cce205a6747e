"""Who drains failures: a process, or a file that a process writes and the next one goes on with."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import asdict, dataclass
from typing import Any

from redis_acker.leftovers import start_of


@dataclass(frozen=True)
class Owner:
    """The owner of what a drain has taken."""

    host: str
    pid: int
    started: str
    """When the process started: its pid may belong to another by now."""
    file: str = ""
    """Identifies the file that the drain writes; empty if there is none."""
    where: str = ""
    """Where the failures go, for people."""

    @classmethod
    def here(cls, where: str, file: os.stat_result | None = None) -> Owner:
        """This process."""
        identity = f"{file.st_dev}:{file.st_ino}" if file else ""
        return cls(_host(), os.getpid(), start_of(os.getpid()), identity, where)

    @property
    def name(self) -> tuple[str, ...]:
        """Of two owners with the same name the later one goes on with what the earlier one has taken."""
        return (self.host_name, self.file) if self.file else (self.host, str(self.pid), self.started)

    @property
    def host_name(self) -> str:
        return self.host.partition("/")[0]

    def is_gone(self) -> bool:
        """Whether it certainly has ended and left no file that goes with what it took."""
        return not self.file and self.host == _host() and start_of(self.pid) != self.started

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.where} on {self.host_name}"


def _host() -> str:
    # Process ids mean something only within one pid namespace; containers may share a host name.
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        name += f"/{os.stat('/proc/self/ns/pid').st_ino}"
    return name
