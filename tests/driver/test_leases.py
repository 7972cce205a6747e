"""One driver per spout: the second is refused, or waits for its turn."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from redis_acker import SpoutDriver, TaskContext
from redis_acker.clock import SystemClock
from redis_acker.errors import ServerUnavailable, SpoutTaken
from redis_acker.store.lease import Lease
from tests.driver.conftest import NewWorld
from tests.driver.faults import unavailable, watched_acker
from tests.driver.source import DurableSpout
from tests.driver.world import SPOUT, World
from tests.waiting import wait_until


def open_driver(world: World) -> SpoutDriver:
    driver = world.new_driver()
    driver.open()
    return driver


def in_thread(run: Callable[[threading.Event], object]) -> tuple[threading.Thread, threading.Event]:
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(stop,))
    thread.start()
    return thread, stop


def test_a_second_driver_is_refused_and_told_who_drives(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    first = open_driver(world)
    first.step()
    spout = DurableSpout(world.disk)
    second = world.new_driver(spout=spout)
    here = f"{socket.gethostname()} pid {os.getpid()}"
    with pytest.raises(SpoutTaken, match=f"'orders' is driven by {here} .* ms to go"):
        second.open()
    assert not spout.is_open
    world.live(first)
    first.close()
    world.check()


DEAD = "from redis_acker.store.lease import process_name; print(process_name())"


def write_lease(world: World, holder: str) -> None:
    world.client.set(world.acker.shards.keys[0].lease(world.acker.spout_number(SPOUT)), holder, px=60_000)


def test_a_driver_whose_process_is_dead_is_succeeded_at_once(
    new_world: NewWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = new_world({1: "complete"})
    dead = subprocess.run([sys.executable, "-c", DEAD], capture_output=True, text=True, check=True).stdout.strip()
    write_lease(world, dead)
    with caplog.at_level(logging.INFO, "redis_acker.store.lease"):
        driver = open_driver(world)
    assert f"was driven by {dead}, which is dead" in caplog.text
    world.live(driver)
    driver.close()
    world.check()


def test_a_driver_of_which_nothing_is_known_keeps_its_lease(new_world: NewWorld) -> None:
    """Whatever its process id: it is one of another machine, or in another namespace."""
    world = new_world({1: "complete"})
    for holder in ("other pid 999999999 12345678 0123456789abcdef.1", "other pid 999999999 12345678", "somebody"):
        write_lease(world, holder)
        with pytest.raises(SpoutTaken, match=holder):
            open_driver(world)
    world.let_lease_run_out()


def test_of_two_that_find_a_dead_holder_one_takes_over(new_world: NewWorld) -> None:
    world = new_world()
    first, second = (Lease(world.new_acker(), SPOUT) for _ in range(2))
    write_lease(world, "dead")
    assert first._ask(dead="dead")[0] == first._owner
    assert second._ask(dead="dead")[0] == first._owner
    first.give_up()


def test_a_driver_that_ends_leaves_the_spout_to_the_next_at_once(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    open_driver(world).close()
    open_driver(world).close()


def test_drivers_of_other_spouts_are_not_in_the_way(new_world: NewWorld) -> None:
    world = new_world()
    drivers = [world.new_driver(name=name) for name in ("a", "b")]
    for driver in drivers:
        driver.open()
    for driver in drivers:
        driver.close()


def test_a_driver_that_waits_takes_over_when_the_first_ends(
    new_world: NewWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = new_world({1: "complete"})
    first = open_driver(world)
    first.step()
    second = world.new_driver(wait_for_lease=True)
    with caplog.at_level(logging.INFO, "redis_acker.store.lease"):
        thread, stop = in_thread(second.run)
        wait_until(lambda: "waits for its turn: it is driven by" in caplog.text)
    first.close()
    world.work()
    wait_until(world.disk.is_done)
    stop.set()
    thread.join()
    assert world.attempts_at(1) == [1]
    world.check()


def test_a_driver_that_is_told_to_stop_while_it_waits_touches_nothing(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    first = open_driver(world)
    first.step()
    world.work()
    spout = DurableSpout(world.disk)
    second = world.new_driver(spout=spout, wait_for_lease=True)
    thread, stop = in_thread(second.run)
    stop.set()
    thread.join()
    assert not spout.is_open
    assert world.disk.settled == {}
    first.step()
    first.close()
    assert world.disk.settled == {1: "acked"}
    world.check()


def test_a_driver_that_waits_goes_on_waiting_while_the_server_does_not_answer(new_world: NewWorld) -> None:
    world = new_world()
    points = unavailable(lambda number, where: where == "before lease" and len(points.hits) < 2)
    lease, stop = Lease(watched_acker(world.new_acker(), points), SPOUT), threading.Event()
    assert lease.take(wait=True, stop=stop)
    assert len(points.hits) == 2
    silent = unavailable(lambda number, where: where == "before lease")
    impatient = Lease(watched_acker(world.new_acker(), silent), "other")
    with pytest.raises(ServerUnavailable):
        impatient.take(wait=False, stop=stop)
    lease.give_up()


def test_a_lease_that_ran_out_unnoticed_is_taken_again(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    driver = world.new_driver(lease_ms=1)
    driver.open()
    world.live(driver)
    driver.close()
    world.check()


def test_a_lease_is_renewed_three_times_while_it_lasts(new_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(SystemClock, "uptime_s", lambda self: now_s)
    world = new_world()
    points = unavailable(lambda number, where: False)
    lease = Lease(watched_acker(world.new_acker(), points), SPOUT, for_ms=9_000)
    asked = []
    for _ in range(30):
        before = points.passed
        lease.renew()
        asked.append(points.passed > before)
        now_s += 1
    assert asked == [True, False, False] * 10
    lease.give_up()


def test_a_driver_that_was_taken_over_stops_with_the_name_of_the_other(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(SystemClock, "uptime_s", lambda self: now_s)
    world = new_world({1: "complete"})
    first = open_driver(world)
    now_s += 60
    world.let_lease_run_out()
    second = open_driver(world)
    with pytest.raises(SpoutTaken, match=r"'orders' was taken over by .* pid .* for 10000 ms"):
        first.step()
    first.close()
    assert world.deliveries == []
    world.live(second)
    second.close()
    world.check()


def test_a_source_that_cannot_be_opened_does_not_keep_the_spout(new_world: NewWorld) -> None:
    class Locked(DurableSpout):
        def open(self, context: TaskContext) -> None:
            raise PermissionError("locked")

    world = new_world({1: "complete"})
    with pytest.raises(PermissionError):
        world.new_driver(spout=Locked(world.disk)).open()
    driver = open_driver(world)
    world.live(driver)
    driver.close()
    world.check()


def test_a_driver_ends_though_the_server_cannot_be_told(new_world: NewWorld, caplog: pytest.LogCaptureFixture) -> None:
    world = new_world({1: "complete"})
    spout = DurableSpout(world.disk)
    points = unavailable(lambda number, where: where == "before unlease")
    driver = world.new_driver(watched_acker(world.new_acker(), points), spout=spout)
    driver.open()
    world.live(driver)
    driver.close()
    assert points.hits
    assert not spout.is_open
    assert "ends in 10000 ms" in caplog.text
    world.let_lease_run_out()
    successor = open_driver(world)
    successor.step()
    successor.close()
    world.check()
