"""Drivers in processes of their own: killed, paused, succeeded by others."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from redis_acker.retries.book import RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.store.message_ids import MessageId
from tests.backends import Servers
from tests.driver.processes import TAKEN, Surroundings
from tests.driver.world import SPOUT

PLANS: dict[MessageId, str] = {"a": "complete", "b": "fail once", "c": "fatal", "d": "complete"}


@pytest.fixture
def surroundings(servers: Servers, namespace: str, tmp_path: Path) -> Iterator[Surroundings]:
    client = servers.client("redis-7.0")
    found = Surroundings(servers.get("redis-7.0").url, namespace, tmp_path, PLANS)
    yield found
    found.close()
    for key in client.scan_iter(match=f"*{namespace}*", count=1000):
        client.delete(key)


def check(surroundings: Surroundings) -> None:
    """Everything is settled as planned, and nothing is left in work."""
    surroundings.disk.reload()
    assert surroundings.disk.settled == {"a": "acked", "b": "acked", "c": "dead", "d": "acked"}
    assert [letter.message_id for letter in DeadLetters(surroundings.acker, spout=SPOUT)] == ["c"]
    assert RetryBook(surroundings.acker, SPOUT).load() == {}
    assert surroundings.acker.pending_count() == 0


@pytest.mark.parametrize("kill_at", range(4, 100, 7))
def test_a_driver_killed_by_sigkill_is_succeeded_by_the_next(surroundings: Surroundings, kill_at: int) -> None:
    first = surroundings.start(kill_at=kill_at)
    surroundings.work_until(lambda: first.exitcode is not None)
    assert first.exitcode == -signal.SIGKILL
    second = surroundings.start()
    surroundings.work_until(lambda: second.exitcode is not None)
    assert second.exitcode == 0
    check(surroundings)


def test_a_driver_that_was_paused_for_longer_than_its_lease_stops_and_does_no_harm(
    surroundings: Surroundings, tmp_path: Path
) -> None:
    first = surroundings.start(until="never")
    surroundings.work_until(lambda: len(surroundings.seen) >= len(PLANS))
    assert first.pid
    os.kill(first.pid, signal.SIGSTOP)
    second = surroundings.start(until="all is done")
    surroundings.work_until(lambda: surroundings.disk.reload().is_done())
    seen = list(surroundings.seen)
    os.kill(first.pid, signal.SIGCONT)
    surroundings.work_until(lambda: first.exitcode is not None)
    assert (first.exitcode, second.exitcode) == (TAKEN, None)
    assert len(surroundings.seen) <= len(seen) + 1, "more than the tuple that it was about to send"
    (tmp_path / "all is done").touch()
    surroundings.work_until(lambda: second.exitcode is not None)
    assert second.exitcode == 0
    check(surroundings)
