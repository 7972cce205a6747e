"""Finds and ends the processes of a test cluster, wherever they descend from. Linux only: it reads /proc.

Run as a program, it is the keeper of a cluster: when the test run that started it ends, even by SIGKILL, so do all
processes of the cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]

#: An environment variable that every descendant inherits: its value says which cluster a process belongs to.
MARK = "REDIS_ACKER_TEST_CLUSTER"


def environment(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty if it has ended."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return dict(word.split("=", 1) for word in words if "=" in word)
    return {}


def command_line(pid: int) -> list[str]:
    """The words a process was started with; none if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


def marked(mark: str) -> Iterator[int]:
    """The processes of a cluster."""
    for name in os.listdir("/proc"):
        if name.isdigit() and environment(int(name)).get(MARK) == mark:
            yield int(name)


def descendants(pid: int) -> list[int]:
    """The children of a process, theirs, and so on."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found, left = list[int](), [pid]
    while left:
        parent = left.pop()
        children = [one for one, its in parents.items() if its == parent]
        found += children
        left += children
    return found


@contextmanager
def own_driver(module: str, arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A module of the tests as a program: a driver with workers of its own. At the end SIGKILL takes them all."""
    driver = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(arguments)],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield driver
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def start_keeper(mark: str, directory: Path) -> subprocess.Popen[bytes]:
    """A process that ends the cluster and removes its directory as soon as its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.processes", mark, str(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the test run; the keeper follows it
    )


def end_all(mark: str) -> None:
    """SIGKILL for every process of the cluster, and for what they started meanwhile."""

    def none_is_left() -> bool:
        pids = list(marked(mark))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait_until(none_is_left, 30)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_all(sys.argv[1])
    shutil.rmtree(sys.argv[2], ignore_errors=True)
