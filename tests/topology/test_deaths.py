"""Processes that die in the middle of a topology: killed by one of their messages, or from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from math import ceil, log2
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Acker, BasicBolt, DeadLetters, LocalRunner, RetryPolicy, TopologyBuilder, Tuple
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.store.message_ids import MessageId
from tests.backends import Servers
from tests.driver.processes import FileDisk
from tests.driver.source import DurableSpout
from tests.waiting import wait_until

TIMEOUT_MS = 400
POLICY = RetryPolicy(max_attempts=3, first_ms=10, jitter=0)


class Work(BasicBolt):
    """Does what the plan of a message says."""

    fields = ("id", "plan")

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["plan"] == "exit":
            os._exit(9)
        elif tup["plan"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        elif tup["plan"] == "slow":
            time.sleep(0.001)
        elif tup["plan"] == "end the run":
            raise SystemExit("out of paper")
        emit(*tup.values)


def work(url: str, namespace: str, folder: Path, plans: Mapping[MessageId, str], max_pending: int) -> None:
    """The life of a process. Its lease would outlast the test: the next one knows that it is dead."""
    builder = TopologyBuilder("job")
    builder.spout("source", DurableSpout(FileDisk(folder, plans)))
    builder.spout("other", DurableSpout(FileDisk(folder / "other", dict.fromkeys(plans, "complete"))))
    builder.bolt("first", Work(), parallelism=2).shuffle("source").shuffle("other")
    builder.bolt("second", Work()).shuffle("first")
    acker = Acker(url, namespace=namespace, timeout_ms=TIMEOUT_MS)
    options: dict[str, Any] = {"retries": POLICY, "max_pending": max_pending, "wait_for_lease": True}
    with LocalRunner(builder.build(), acker, lease_ms=120_000, **options) as runner:
        assert runner.wait_until_idle(timeout_s=60)


class Supervisor:
    """Starts the process again and again until it ends well."""

    def __init__(self, url: str, namespace: str, folder: Path) -> None:
        self.acker = Acker(url, namespace=namespace, timeout_ms=TIMEOUT_MS)
        self._url, self._namespace, self._folder = url, namespace, folder
        (folder / "other").mkdir()
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(["tests.topology.test_deaths"])

    def start(self, plans: Mapping[MessageId, str], max_pending: int) -> ForkServerProcess:
        args = (self._url, self._namespace, self._folder, plans, max_pending)
        process = self._context.Process(target=work, args=args)
        process.start()
        return process

    def deaths(self, plans: Mapping[MessageId, str], max_pending: int) -> int:
        for deaths in range(100):
            process = self.start(plans, max_pending)
            process.join()
            if process.exitcode == 0:
                return deaths
        raise AssertionError("it dies for ever")

    def wait_for(self, settled: int) -> None:
        wait_until(lambda: len(self.settled()) >= settled, 60, 0.001)

    def settled(self, spout: str = "") -> dict[MessageId, str]:
        return FileDisk(self._folder / spout, {}).settled


@pytest.fixture
def supervisor(servers: Servers, namespace: str, tmp_path: Path) -> Iterator[Supervisor]:
    client = servers.client("redis-7.0")
    found = Supervisor(servers.get("redis-7.0").url, namespace, tmp_path)
    yield found
    found.acker.close()
    for key in client.scan_iter(match=f"*{namespace}*", count=1000):
        client.delete(key)


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_message_that_kills_its_process_is_buried_alone_and_named(supervisor: Supervisor, how: str) -> None:
    plans: dict[MessageId, str] = {one: how if one == 30 else "complete" for one in range(60)}
    deaths = supervisor.deaths(plans, 12)
    assert deaths <= ceil(log2(12)) + 1 + POLICY.max_attempts
    assert supervisor.settled() == {one: "dead" if one == 30 else "acked" for one in plans}
    assert supervisor.settled("other") == dict.fromkeys(plans, "acked")
    [letter] = DeadLetters(supervisor.acker)
    assert (letter.message_id, letter.payload, letter.fatal) == (30, [30, how], False)
    assert [one.attempt for one in letter.history] == [1, 2, 3]
    assert {one.error for one in letter.history} == {"it kills its process: it was alone in flight when that died"}


def test_a_message_that_ends_the_run_is_buried_alone(supervisor: Supervisor) -> None:
    plans: dict[MessageId, str] = {one: "end the run" if one == 30 else "complete" for one in range(60)}
    assert supervisor.deaths(plans, 12) == POLICY.max_attempts
    assert supervisor.settled() == {one: "dead" if one == 30 else "acked" for one in plans}
    [letter] = DeadLetters(supervisor.acker)
    assert letter.message_id == 30
    assert {(one.component, one.error) for one in letter.history} == {
        ("first", "it ends the run: SystemExit: out of paper")
    }


def test_healthy_messages_survive_more_deaths_than_they_have_attempts(supervisor: Supervisor) -> None:
    """Killed from outside, each time when some of the work is done."""
    plans: dict[MessageId, str] = dict.fromkeys(range(2_000), "slow")
    for _ in range(2 * POLICY.max_attempts):
        process, enough = supervisor.start(plans, 500), len(supervisor.settled()) + 100
        supervisor.wait_for(enough)
        assert process.pid
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert supervisor.deaths(plans, 500) == 0
    assert supervisor.settled() == dict.fromkeys(plans, "acked")
    assert list(DeadLetters(supervisor.acker)) == []


def test_all_drivers_of_a_runner_take_turns_to_try_suspects() -> None:
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([1]), parallelism=2)
    builder.spout("other", IterableSpout([1]))
    builder.bolt("first", Work()).shuffle("source").shuffle("other")
    drivers = LocalRunner(builder.build(), None).drivers
    assert len(drivers) == 3
    assert len({id(driver._trials) for driver in drivers}) == 1
