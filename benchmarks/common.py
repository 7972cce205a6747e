"""What benchmarks share: a rival to compare with, a clock for single calls, and a report with targets."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from redis_acker.errors import ServerUnavailable
from redis_acker.server.embedded import EmbeddedServer
from redis_acker.store.acker import RETRY_FOR_S, Acker
from redis_acker.store.transport import Command, Transport

RIVAL = "redis-benchmark"
RIVAL_ARGS = ("-t", "hset", "-P", "64", "--csv")


def hset_per_s(server: EmbeddedServer, requests: int) -> float:
    """HSET requests per second, pipelined by 64 over 50 connections, as redis-benchmark counts them."""
    if shutil.which(RIVAL) is None:
        raise ServerUnavailable(f"{RIVAL} is not on PATH: install it with `apt-get install redis-tools`.")
    password = urlsplit(server.url).password or ""
    command = [RIVAL, "-p", str(server.port), "-a", password, "-n", str(requests), *RIVAL_ARGS]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = list(csv.DictReader(line for line in printed.splitlines() if line.startswith('"')))
    return float(rows[0]["rps"])


class CallClock(Transport):
    """Sends one call at a time and notes the CPU time that the server's one command thread spent on it.

    That is the script, plus reading the request and writing the reply. Unlike the wall clock it leaves out the time in
    which a busy machine runs other processes. Only Linux reports it; elsewhere the wall clock has to do.
    """

    def __init__(self, acker: Acker, server: EmbeddedServer, calls_ms: dict[str, list[float]]) -> None:
        """Replaces the acker's transport. calls_ms gets the time of every call, under the name of its script."""
        super().__init__(acker.servers, retry_for_s=RETRY_FOR_S)
        self._thread = Path(f"/proc/{server.pid}/task/{server.pid}")
        self._is_told = (self._thread / "schedstat").exists()
        self._calls_ms = calls_ms
        acker.shards.transport = self

    def run(self, commands: Iterable[Command], *, retry_for_s: float | None = None) -> list[Any]:
        replies = []
        start_ns = self._now_ns()
        for command in commands:
            replies += super().run([command])
            end_ns = self._now_ns()
            if command.script:
                self._calls_ms[command.script.name].append((end_ns - start_ns) / 1e6)
            start_ns = end_ns
        return replies

    def _now_ns(self) -> int:
        if not self._is_told:
            return time.perf_counter_ns()
        # The count of a running thread lags behind; it is exact once the thread sleeps.
        while b") S " not in _read(self._thread / "stat"):
            pass
        return int(_read(self._thread / "schedstat").split()[0])


def _read(path: Path) -> bytes:
    # Path.read_bytes() takes several times as long.
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1024)
    finally:
        os.close(file)


@dataclass(frozen=True)
class Target:
    """The limit that a value should keep to."""

    sign: str
    limit: float

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.sign == ">=" else value <= self.limit


@dataclass
class Report:
    """Measured values, each with a name for programs and a description for people."""

    title: str
    facts: dict[str, str | int]
    values: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)

    def add(self, name: str, words: str, value: float, target: Target | None = None) -> None:
        self.values[name], self.words[name] = float(f"{value:.3g}" if value < 1000 else f"{value:.0f}"), words
        if target:
            self.targets[name] = target

    @property
    def missed(self) -> list[str]:
        return [name for name, target in self.targets.items() if not target.is_met(self.values[name])]

    def as_json(self) -> str:
        targets = {name: f"{target.sign} {target.limit:g}" for name, target in self.targets.items()}
        return json.dumps({**self.facts, **self.values, "targets": targets, "missed": self.missed})

    def as_table(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        lines = [f"{self.title} ({facts})", ""]
        for name, value in self.values.items():
            target = self.targets.get(name)
            verdict = f"{target.sign} {target.limit:g}  {'missed' if name in self.missed else 'met'}" if target else ""
            lines.append(f"{self.words[name]:<52} {value:>9,g}  {verdict}".rstrip())
        return "\n".join(lines)
