"""Finds embedded servers whose owner was killed, and ends them.

Each server has a private directory, named after the process that owns it, in one registry
directory per user. A directory whose owner is gone is a leftover.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

from redis_acker.errors import ServerUnavailable

#: The file in a server's directory that holds its pid and its port.
PID_FILE = "server.pid"


def registry() -> Path:
    """The directory of this user's servers, made if missing.

    Raises ServerUnavailable if another user could have put something into it.
    """
    name = f"redis-acker-{os.getuid()}"
    # Process ids mean something only within one pid namespace; containers may share a temp directory.
    with contextlib.suppress(OSError):
        name += f"-{os.stat('/proc/self/ns/pid').st_ino}"
    return _private(Path(tempfile.gettempdir(), name).resolve())


def new_directory() -> Path:
    """A private directory that says which process owns it."""
    owner = os.getpid()
    directory = registry() / f"{owner}-{start_of(owner)}-{secrets.token_hex(4)}"
    directory.mkdir(mode=0o700)
    return directory


def reap() -> None:
    """End every server whose owner is gone, and remove its directory."""
    for directory in registry().iterdir():
        owner, _, started = directory.name.rpartition("-")[0].partition("-")
        if not owner.isdigit() or start_of(int(owner)) == started:
            continue
        with contextlib.suppress(OSError, ValueError):
            pid, port = map(int, (directory / PID_FILE).read_text().split())
            # The pid may by now belong to some other process.
            if _is_server(pid, port, directory):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)


def _private(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ServerUnavailable(f"{path} is not a private directory of this user: remove it.")
    return path


def start_of(pid: int) -> str:
    """When a process started, in the system's own words; empty if there is no such process."""
    if os.path.exists("/proc/self/stat"):
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return ""
        # The second field, in parentheses, may hold spaces; the start time is the 22nd.
        state, *fields = text.rpartition(")")[2].split()
        return "" if state == "Z" else fields[18]
    return "".join(character for character in _ps(pid, "lstart") if character.isalnum())


def _is_server(pid: int, port: int, directory: Path) -> bool:
    if os.path.exists("/proc/self/cwd"):
        return os.readlink(f"/proc/{pid}/cwd") == str(directory)
    return f"-server 127.0.0.1:{port}" in _ps(pid, "command")


def _ps(pid: int, column: str) -> str:
    found = subprocess.run(["ps", "-o", f"{column}=", "-p", str(pid)], capture_output=True, text=True)
    return found.stdout.strip()
