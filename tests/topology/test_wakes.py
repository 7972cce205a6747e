"""Nobody looks for work that is not there: tasks and drivers rest until they are woken, once."""

from __future__ import annotations

import threading

import pytest

from redis_acker import LocalRunner, Message, Tuple
from redis_acker.clock import SYSTEM_CLOCK
from redis_acker.driver import driver
from redis_acker.topology.task_queue import TaskQueue
from tests.components.store import Store
from tests.topology.parts import ListSpout, Relay, Shared, topology
from tests.waiting import wait_until


def test_a_driver_without_room_pauses_until_somebody_makes_some(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SHORTEST_PAUSE_S", 3600.0)
    monkeypatch.setattr(driver, "LONGEST_PAUSE_S", 3600.0)

    class Counts(ListSpout):
        rounds: Shared[None] = Shared()

        def keep_alive(self) -> None:
            self.rounds.append(None)

    spout = Counts([Message([number], id=number) for number in range(50)])
    with LocalRunner(topology(spout, Relay()), store.acker, max_pending=1):
        wait_until(lambda: len(spout.told) == 50)
    assert len(spout.rounds) < 75


def test_one_wake_is_enough_for_all_tuples_that_come_before_the_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, wakes, waits = TaskQueue(SYSTEM_CLOCK, is_tracked=True), list[None](), threading.Event()

    def wait_for(event: threading.Event, timeout_s: float | None) -> bool:
        for number in range(5):
            queue.put(Tuple([number]))
        waits.set()
        return True

    monkeypatch.setattr(queue, "_wait_for", wait_for)
    monkeypatch.setattr(queue._wake, "set", lambda: wakes.append(None))
    queue.wait(threading.Event())
    assert waits.is_set()
    assert len(wakes) == 1
    assert [queue.take()[0] for _ in range(5)] == [0, 1, 2, 3, 4]
