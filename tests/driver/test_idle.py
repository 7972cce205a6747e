"""A driver says that it is idle when nothing is left to do, and at no point before."""

from __future__ import annotations

from redis_acker import SpoutDriver
from tests.driver.conftest import NewWorld
from tests.driver.faults import Points, WatchedRouter, WatchedSpout, watched_acker
from tests.driver.source import DurableSpout
from tests.driver.test_kills import PLANS
from tests.driver.world import Router


def test_a_driver_is_not_idle_while_a_message_is_unfinished(new_world: NewWorld) -> None:
    world = new_world(PLANS)
    spout = DurableSpout(world.disk)
    drivers: list[SpoutDriver] = []
    too_early: list[str] = []

    def look(number: int, where: str) -> bool:
        if drivers and spout.is_open and drivers[0].is_idle() and spout.unfinished():
            too_early.append(f"{where}: {spout.unfinished()}")
        return False

    points = Points(look, lambda: None)
    drivers.append(
        world.new_driver(
            watched_acker(world.new_acker(), points),
            spout=WatchedSpout(spout, points),
            router=WatchedRouter(Router(world), points),
            max_pending=2,
        )
    )
    drivers[0].open()
    world.live(drivers[0])
    assert too_early == []
    assert drivers[0].is_idle()
    drivers[0].close()
    world.check()


def test_what_an_earlier_driver_noted_and_the_source_has_no_more_keeps_nobody_waiting(new_world: NewWorld) -> None:
    world = new_world({1: "fail", 2: "complete"})
    first = world.new_driver()
    first.open()
    first.step()
    world.work()
    first.step()
    first.close()
    del world.disk.plans[1]
    second = world.new_driver()
    second.open()
    world.live(second)
    assert second.is_idle()
    second.close()
