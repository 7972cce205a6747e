"""Runs the installed console script."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
"""How long a test waits for a process before it says that nothing comes."""

SCRIPT = str(Path(sys.prefix, "bin", "redis-acker"))


def redis_acker(*args: str, timeout_s: float = PATIENCE_S, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *args], env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout_s
    )


@contextmanager
def killed_by_an_error(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """A test that fails does not wait for a process that goes on."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


@contextmanager
def redis_acker_on_terminal(*args: str) -> Iterator[tuple["subprocess.Popen[bytes]", "Terminal"]]:
    """Starts it with a terminal as its standard error."""
    screen, keyboard = pty.openpty()
    with subprocess.Popen([SCRIPT, *args], stdout=subprocess.DEVNULL, stderr=keyboard) as process:
        os.close(keyboard)
        with killed_by_an_error(process):
            yield process, Terminal(screen)
    os.close(screen)


class Terminal:
    """What a process has printed on its terminal."""

    def __init__(self, screen: int) -> None:
        self._screen = screen
        self.printed = ""

    def read_until(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.printed and self._read(deadline):
            pass

    def read_to_the_end(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline):
            pass

    def _read(self, deadline: float) -> bool:
        readable, _, _ = select.select([self._screen], [], [], max(0, deadline - time.monotonic()))
        assert readable, f"nothing more for {PATIENCE_S:g} s after {self.printed!r}"
        try:
            self.printed += os.read(self._screen, 4096).decode()
        except OSError:  # the process has closed its end
            return False
        return True
