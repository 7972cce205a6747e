"""Three applications in a row, in processes of their own, that are killed and started again: examples/three_apps."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Acker, DeadLetters
from tests.servers import Server, start_server
from tests.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_apps"
APPS = ("orders", "pricing", "billing")
BILLED_AT_ONCE = 500

MESSAGES = int(os.environ.get("THREE_APPS_MESSAGES", "5000"))
POISON = 10
KILLS = 3
"""Of each application."""


def load_run() -> Any:
    spec = util.spec_from_file_location("three_apps_run", EXAMPLE / "run.py")
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.full
def test_the_example_prints_what_its_readme_says() -> None:
    readme = (EXAMPLE / "README.md").read_text()
    [output] = re.findall(r"```output\n(.*?)```", readme, re.DOTALL)
    [command] = re.findall(r"```sh\npython (.*?)\n```", readme)
    root = EXAMPLE.parents[1]
    ran = subprocess.run(
        [sys.executable, *command.split()],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    *lines, twice = ran.stdout.splitlines()
    assert lines == output.splitlines()
    assert twice.startswith("booked twice: ")


@pytest.fixture
def server() -> Iterator[Server]:
    server = start_server("redis-7.0")
    yield server
    server.stop()


@dataclass
class Application:
    """One of the three, which is killed whenever its log has come to a certain length."""

    name: str
    run: Any
    url: str
    logs: Path
    kill_at: list[int]
    cores: int = 1
    process: subprocess.Popen[bytes] = field(init=False)
    kills: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.process = self.run.start(self.name, self.url, self.logs, self.cores)

    def look(self) -> None:
        if self.process.poll() is not None:
            return
        log = self.logs / f"{self.name}.log"
        lines = log.read_bytes().count(b"\n") if log.exists() else 0
        if self.kill_at and lines >= self.kill_at[0]:
            self.kill_at = [one for one in self.kill_at[1:] if one > lines]
            self.kill()
            self.kills, self.cores = self.kills + 1, self.cores % 3 + 1
            self.start()

    def kill(self) -> None:
        """The driver with all that it has started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def check(self) -> None:
        if self.process.poll():
            raise AssertionError((self.logs / f"{self.name}.out").read_text()[-5000:])


@pytest.mark.full
def test_nothing_is_lost_and_nothing_over_twice_though_each_is_killed(server: Server, tmp_path: Path) -> None:
    seed = os.environ.get("SEED", str(random.randrange(1000)))
    print(f"SEED={seed}")
    chance, run = random.Random(seed), load_run()
    expected = run.fill(server.client(), MESSAGES, POISON)
    with Acker(server.url, namespace="three-apps", timeout_ms=300_000) as acker:
        apps = []
        try:
            for name in APPS:
                kill_at = sorted(chance.randrange(int(1.8 * MESSAGES)) for _ in range(KILLS))
                apps.append(Application(name, run, server.url, tmp_path, kill_at))

            def is_over() -> bool:
                for app in apps:
                    app.look()
                    app.check()
                return apps[0].process.poll() == 0

            wait_until(is_over, timeout_s=1500, poll_s=0.1)
            for app in apps[1:]:
                app.process.wait(60)
        finally:
            for app in apps:
                if app.process.poll() is None:
                    app.kill()
        dead = {letter.message_id for letter in DeadLetters(acker, spout="orders")}
        found = run.report(tmp_path, expected, dead)
        print(found, {app.name: app.kills for app in apps})
        assert found["completed"] == MESSAGES - POISON
        assert (found["dead"], found["lost"], found["dead by mistake"]) == (POISON, 0, 0)
        check_books(acker, expected)
    check_repetitions(tmp_path, apps[2].kills)


def check_books(acker: Acker, expected: dict[str, list[str]]) -> None:
    """One completion for each message that can be done, and nothing left."""
    [spout] = acker.stats().spouts
    print(spout)
    assert (spout.completed, spout.pending) == (MESSAGES - POISON, 0)
    letters = {letter.message_id: letter for letter in DeadLetters(acker, spout="orders")}
    assert letters.keys() == {order for order, items in expected.items() if not items}
    assert {len(letter.history) for letter in letters.values()} == {5}


def check_repetitions(logs: Path, kills: int) -> None:
    """Within one attempt at an order, an item is booked twice only if billing was killed between that and its acks."""
    lines = (logs / "billing.log").read_text().splitlines()
    same_attempt = sum(count - 1 for count in Counter(lines).values())
    print(f"{same_attempt} of {len(lines):,} lines repeat one of the same attempt, after {kills} kills")
    assert same_attempt <= kills * BILLED_AT_ONCE
