"""Runs the installed console script."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPT = str(Path(sys.prefix, "bin", "redis-acker"))


def redis_acker(*args: str, timeout_s: float = 60, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *args], env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout_s
    )


@contextmanager
def redis_acker_on_terminal(*args: str) -> Iterator[tuple["subprocess.Popen[bytes]", "Terminal"]]:
    """Starts it with a terminal as its standard error."""
    screen, keyboard = pty.openpty()
    with subprocess.Popen([SCRIPT, *args], stdout=subprocess.DEVNULL, stderr=keyboard) as process:
        os.close(keyboard)
        yield process, Terminal(screen)
    os.close(screen)


class Terminal:
    """What a process has printed on its terminal."""

    def __init__(self, screen: int) -> None:
        self._screen = screen
        self.printed = ""

    def read_until(self, text: str) -> None:
        while text not in self.printed and self._read():
            pass

    def read_to_the_end(self) -> None:
        while self._read():
            pass

    def _read(self) -> bool:
        try:
            self.printed += os.read(self._screen, 4096).decode()
        except OSError:  # the process has closed its end
            return False
        return True
