"""Drain and replay, killed anywhere and run again: nothing lost, nothing replayed twice, attempts counted on."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

import pytest

from redis_acker.cli import drain as drain_command
from redis_acker.cli import replay as replay_command
from redis_acker.cli.failure_file import FailureFile
from redis_acker.cli.options import Failures, RateLimit, Store
from redis_acker.cli.output import Output
from redis_acker.retries.book import RetryBook
from redis_acker.retries.withdrawals import Owner
from redis_acker.store.acker import Acker
from redis_acker.store.message_ids import MessageId
from tests.cli.acting_commands.conftest import NewShop
from tests.cli.acting_commands.shop import SPOUT, Shop
from tests.driver.faults import Killed, Points, killing_at, no_faults, watched_acker

MESSAGES = {f"m{i}": 1 + i % 4 for i in range(7)}
"""Message id -> attempt that failed."""


class Driver:
    """Replays and completes at once what it is asked for, so that nothing in the store tells of it afterwards."""

    def __init__(self, shop: Shop) -> None:
        self._book = RetryBook(shop.acker, SPOUT)
        self.emitted: Counter[tuple[MessageId, int]] = Counter()

    def work(self) -> None:
        for request in self._book.requests():
            self._book.accept(request, is_news=True)
            self.emitted[request.message_id, request.retry.attempt + 1] += 1
            self._book.forget([request.message_id])


T = TypeVar("T")


class SmallSteps(RateLimit):
    """Few roots at a time, so that a failure takes several steps, and no waiting."""

    def parts(self, roots: Iterable[T]) -> Iterator[list[T]]:
        rest = iter(roots)
        while part := list(islice(rest, 3)):
            yield part


class ChoppedFile:
    """Writes half of what it is given, with a point after that."""

    def __init__(self, file: Any, points: Points) -> None:
        self._file, self._points = file, points

    def write(self, data: memoryview) -> int:
        written: int = self._file.write(data[: (len(data) + 1) // 2])
        self._points.pass_by("in a write")
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Lives:
    """Processes that drain and replay, one after the other."""

    def __init__(self, shop: Shop, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self._shop, self._path, self._capsys = shop, path, capsys
        self._pids = count(10_000_000)  # of processes that do not exist
        self._here = Owner.here
        monkeypatch.setattr(Owner, "here", self._owner)
        self._pid = 0

    def _owner(self, *args: Any) -> Owner:
        return Owner(**{**vars(self._here(*args)), "pid": self._pid, "started": "then"})

    def live(self, way: str, points: Points) -> None:
        self._pid = next(self._pids)
        with Acker(self._shop.url, namespace=self._shop.namespace) as acker:
            store = Store([self._shop.url], self._shop.namespace, Output(as_json=True))
            store._acker = watched_acker(acker, points)
            with contextlib.suppress(Killed):
                getattr(self, f"_{way}")(store, points)
            self._capsys.readouterr()

    def _file(self, store: Store, points: Points) -> None:
        with FailureFile(self._path, store.namespace) as file:
            file._file = ChoppedFile(file._file, points)  # type: ignore[assignment]
            drain_command._drain(store, Failures(), file, SmallSteps(None))
        replay_command._from_file(store, self._path, None, SmallSteps(None))

    def _pipe(self, store: Store, points: Points) -> None:
        drain_command._drain(store, Failures(), None, SmallSteps(None))
        self._path.write_text(self._capsys.readouterr().out)
        replay_command._from_file(store, self._path, None, SmallSteps(None))

    def _store(self, store: Store, points: Points) -> None:
        replay_command._from_store(store, Failures(), SmallSteps(None))


def let_lease_run_out(shop: Shop) -> None:
    keys = shop.acker.shards.keys[0]
    shop.acker.servers.client(0).delete(keys.lease(shop.acker.spout_number(SPOUT)))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["file", "pipe", "store"])
def test_drain_and_replay_may_be_killed_at_any_point(
    new_shop: NewShop, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    expected = Counter((message_id, attempt + 1) for message_id, attempt in MESSAGES.items())
    for at in count(1):
        shop = new_shop(block_size=4)
        shop.start_failed(list(MESSAGES), attempts=list(MESSAGES.values()))
        lives, driver, points = Lives(shop, tmp_path / f"{at}", monkeypatch, capsys), Driver(shop), killing_at(at)
        lives.live(way, points)
        driver.work()
        let_lease_run_out(shop)
        lives.live(way, no_faults())
        driver.work()
        lives.live(way, no_faults())
        driver.work()
        where = f"killed at point {at}, {points.hits}"
        assert driver.emitted == expected, where
        if way == "file":
            roots = [json.loads(line)["root"] for line in (tmp_path / f"{at}").read_text().splitlines()]
            assert len(roots) == len(set(roots)) == len(MESSAGES), where
        assert (shop.entries(), shop.withdrawn()) == (0, 0), where
        if not points.hits:
            break
    assert at > 40


# -- processes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def busy_driver(new_shop: NewShop) -> Iterator[tuple[Shop, Driver]]:
    """A shop with failures, and a driver at work beside all that happens."""
    shop = new_shop("valkey-9.1")
    many = {f"m{i}": 1 + i % 5 for i in range(400)}
    shop.start_failed(list(many), attempts=list(many.values()))
    driver, stop = Driver(shop), threading.Event()

    def work() -> None:
        while not stop.wait(0.005):
            driver.work()

    thread = threading.Thread(target=work)
    thread.start()
    yield shop, driver
    stop.set()
    thread.join()
    driver.work()
    assert driver.emitted == Counter((message_id, attempt + 1) for message_id, attempt in many.items())
    assert (shop.entries(), shop.withdrawn()) == (0, 0)


def pipe_until(shop: Shop, most: int) -> int:
    """drain | replay, with this test as the pipe. Kills both after so many lines. Returns how many came."""
    with shop.started("drain") as drain, shop.started("replay", stdin=-1) as replay:
        assert drain.stdout
        assert replay.stdin
        came = 0
        for line in drain.stdout:
            replay.stdin.write(line)
            came += 1
            if came == most:
                replay.stdin.flush()
                return came
        replay.stdin.close()
        replay.stdin = None
        assert (drain.wait(30), replay.wait(30)) == (0, 0)
        return came


@pytest.mark.slow
def test_drain_piped_into_replay_survives_sigkill(busy_driver: tuple[Shop, Driver]) -> None:
    shop, _ = busy_driver
    dice = random.Random(5)
    for _ in range(6):
        pipe_until(shop, dice.randrange(1, 400))
    while pipe_until(shop, 1_000_000):
        pass


@pytest.mark.slow
def test_drain_into_a_file_and_its_replay_survive_sigkill(busy_driver: tuple[Shop, Driver], tmp_path: Path) -> None:
    shop, _ = busy_driver
    out, dice = tmp_path / "failed.jsonl", random.Random(6)

    def kill_in(*args: str, ready: Callable[[], object]) -> None:
        with shop.started(*args) as process:
            while process.poll() is None and not ready():
                pass
            threading.Event().wait(dice.uniform(0, 0.3))
            process.kill()

    for most in (60, 120, 180, 240):
        grown = partial(has_lines, out, most)
        kill_in("drain", "--out", str(out), "--rate", "60", ready=grown)
        kill_in("replay", str(out), "--rate", "100", ready=lambda: True)
    shop.succeed("drain", "--out", str(out))
    shop.succeed("replay", str(out))
    assert len(out.read_text().splitlines()) == 400


def has_lines(path: Path, count: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") >= count
