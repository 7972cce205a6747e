"""A server that is restarted, with and without its data, while a driver runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from redis_acker import Acker, Anchors, DeadLetter, RetryPolicy, Rotator, SpoutDriver
from redis_acker.errors import AckerError
from redis_acker.retries.dead_letters import DeadLetters
from tests.driver.source import Disk, DurableSpout
from tests.driver.world import SPOUT
from tests.proxy import CuttingProxy
from tests.servers import Server, start_server
from tests.waiting import wait_until

MESSAGES = 40


class Task:
    """Acks what it is given, when told to."""

    def __init__(self, acker: Acker) -> None:
        self._acker = acker
        self._queue: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self.seen: list[Any] = []

    def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
        return ["task"]

    def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        self.seen.append(values[0])
        self._queue.put(next(iter(anchors.items())))

    def forget(self) -> None:
        while not self._queue.empty():
            self._queue.get()

    def work(self, most: int = 1_000_000) -> bool:
        while most and not self._queue.empty():
            root, edge = self._queue.get()
            while True:
                try:
                    self._acker.ack([root], [edge], token=f"{root} {edge}")
                    break
                except AckerError:
                    continue
            most -= 1
        return True


class Run:
    """A driver, its task and a rotator at work on a server."""

    def __init__(
        self, server: Server, namespace: str, *, timeout_ms: int, url: str = "", max_attempts: int = 50
    ) -> None:
        self.acker = Acker(url or server.url, namespace=namespace, timeout_ms=timeout_ms, block_size=8, retry_for_s=0.2)
        self.task = Task(self.acker)
        self.disk = Disk(dict.fromkeys(range(MESSAGES), "complete"))
        policy = RetryPolicy(max_attempts=max_attempts, first_ms=10, longest_ms=10)
        self.driver = SpoutDriver(
            DurableSpout(self.disk), self.acker, self.task, name=SPOUT, retries=policy, max_pending=MESSAGES
        )
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=run, args=(self._stop,)) for run in (self.driver.run, Rotator(self.acker).run)
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        wait_until(lambda: self.task.work() and self.disk.is_done() and self.driver.is_idle(), 60)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.acker.close()


def test_a_server_that_comes_back_with_its_data_costs_nothing_but_time(
    durable_server: Server, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(durable_server, namespace, timeout_ms=60_000)
    wait_until(lambda: len(run.task.seen) == MESSAGES)
    run.task.work(MESSAGES // 2)
    durable_server.kill()
    wait_until(lambda: "Spout orders waits: The server" in caplog.text)
    durable_server.restart()
    run.finish()
    run.stop()
    assert sorted(run.task.seen) == list(range(MESSAGES))
    assert {record.levelno for record in caplog.records if "waits: The server" in record.getMessage()} == {
        logging.ERROR
    }
    assert run.disk.mistakes == []


def test_a_server_that_comes_back_empty_loses_no_message(private_server: Server, namespace: str) -> None:
    run = Run(private_server, namespace, timeout_ms=300)
    wait_until(lambda: len(run.task.seen) == MESSAGES)
    run.task.work(MESSAGES // 2)
    private_server.restart()
    run.finish()
    run.stop()
    assert set(run.task.seen) == set(range(MESSAGES))
    assert run.disk.settled == dict.fromkeys(range(MESSAGES), "acked")
    assert run.disk.mistakes == []


def test_of_two_contradictory_events_after_lost_writes_the_second_is_ignored(namespace: str) -> None:
    """The server comes back as it was before the acks: its driver has told the source that all is complete, and roots
    that are pending once more time out."""
    server = start_server("redis-7.0")
    run = Run(server, namespace, timeout_ms=1_000)
    wait_until(lambda: len(run.task.seen) == MESSAGES)
    with server.client() as client:
        client.save()
    older = (server.directory / "dump.rdb").read_bytes()
    run.finish()
    server.kill()
    (server.directory / "dump.rdb").write_bytes(older)
    server.restart()
    wait_until(lambda: sum(one.timeout for one in run.acker.stats().spouts) == MESSAGES, 30)
    wait_until(lambda: run.acker.shards.unread("failures", run.acker.spout_number(SPOUT)) == [0], 30)
    counters, letters = run.driver.counters, list(DeadLetters(run.acker))
    run.stop()
    server.stop()
    assert sorted(run.task.seen) == list(range(MESSAGES))
    assert run.disk.settled == dict.fromkeys(range(MESSAGES), "acked")
    assert run.disk.mistakes == []
    assert (counters.acked, counters.failed, letters) == (MESSAGES, 0, [])


def finish_after_a_restart(run: Run, server: Server) -> list[DeadLetter]:
    """Its task has lost what it had. Returns what is dead at the end."""
    run.task.forget()
    server.restart()
    run.finish()
    letters = list(DeadLetters(run.acker))
    run.stop()
    server.stop()
    return letters


def test_what_times_out_because_acks_were_lost_with_the_last_writes_is_no_attempt(
    namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server comes back without them, and the task has done its work. With one attempt, every message that is
    counted as failed is dead."""
    server = start_server("redis-7.0")
    run = Run(server, namespace, timeout_ms=1_000, max_attempts=1)
    wait_until(lambda: len(run.task.seen) == MESSAGES)
    with server.client() as client:
        client.save()
    letters = finish_after_a_restart(run, server)
    assert letters == []
    assert run.disk.settled == dict.fromkeys(range(MESSAGES), "acked")
    assert run.disk.mistakes == []
    assert len([one for one in caplog.records if "was restarted or replaced" in one.getMessage()]) == 1


@pytest.mark.parametrize("keeps", ["nothing", "all but the roots"])
def test_what_the_store_has_lost_with_its_server_is_no_attempt(namespace: str, keeps: str) -> None:
    server = start_server("redis-7.0")
    run = Run(server, namespace, timeout_ms=500, max_attempts=1)
    wait_until(lambda: len(run.task.seen) == MESSAGES)
    if keeps == "all but the roots":
        with server.client() as client:
            client.delete(*client.scan_iter(match="*}:heads:*"))
            client.save()
    letters = finish_after_a_restart(run, server)
    assert letters == []
    assert run.disk.settled == dict.fromkeys(range(MESSAGES), "acked")
    assert sorted(run.task.seen) == sorted([*range(MESSAGES)] * 2)


def test_replies_that_are_lost_on_the_way_cost_nothing_but_time(private_server: Server, namespace: str) -> None:
    with CuttingProxy("127.0.0.1", private_server.port) as proxy:
        run = Run(private_server, namespace, timeout_ms=60_000, url=proxy.url)
        proxy.cut_randomly(0.1, seed=1)
        run.finish()
        proxy.cut_randomly(0, seed=1)
        run.stop()
        assert proxy.cuts > 10
    assert sorted(run.task.seen) == list(range(MESSAGES))
    assert run.disk.mistakes == []
