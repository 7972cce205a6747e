"""How a test talks to its driver process: JSON lines, one request and one answer at a time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class DriverEnded(RuntimeError):
    """Raised when a driver process ends instead of answering."""


class JobFailed(RuntimeError):
    """Raised when a job raises; says what."""


class Conversation:
    """A process that reads requests from its standard input and prints an answer to each."""

    def __init__(self, command: list[str], *, log: Path, cwd: Path, env: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as errors:
            # A session of its own: one signal reaches the process and its JVM.
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._unanswered = 1  # it speaks first
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def is_idle(self) -> bool:
        return self.process.poll() is None and self._unanswered == 0

    def say(self, request: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        self._unanswered += 1

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """The next answer, however long the process takes up to timeout_s."""
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(
                f"no answer after {timeout_s:g} s; the driver's log ends with: {self._tail()}"
            ) from None
        if not line:
            raise DriverEnded(f"the driver ended with exit code {self.process.wait()}: {self._tail()}")
        self._unanswered -= 1
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise JobFailed(found["error"])
        return found

    def end(self, timeout_s: float) -> None:
        """Closes the standard input, on which the process ends by itself."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout_s)
        finally:
            self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put(b"")

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]
