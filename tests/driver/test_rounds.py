"""What a round of a driver sends, and in which order: with few messages pending, the calls set the pace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from redis_acker.driver.requests import REQUESTS_EVERY_MS
from redis_acker.errors import MemoryFull
from redis_acker.retries.book import RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.store.shards_streams import GROUP
from redis_acker.store.transport import Command, Transport
from tests.driver.conftest import NewWorld
from tests.driver.world import SPOUT

OF_A_ROUND = {"XREADGROUP", "init", "release", "accept"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the scripts and commands that are sent."""
    names, run = list[str](), Transport.run

    def note(self: Transport, commands: Iterable[Command], **options: Any) -> list[Any]:
        some = list(commands)
        names.extend(one.script.name if one.script else str(one.args[0]) for one in some)
        return run(self, some, **options)

    monkeypatch.setattr(Transport, "run", note)
    return names


def test_bolts_get_new_work_before_the_store_forgets_what_is_complete(new_world: NewWorld, sent: list[str]) -> None:
    world = new_world({1: "complete", 2: "complete"})
    driver = world.new_driver(max_pending=1)
    driver.open()
    while not world.queue:
        driver.step()
    world.work()
    sent.clear()
    driver.step()
    assert [name for name in sent if name in OF_A_ROUND] == ["XREADGROUP", "init", "release"]
    assert world.acker.shards.unread("completions", world.acker.spout_number(SPOUT)) == [0]
    driver.close()


def test_a_request_is_accepted_when_the_store_has_forgotten_the_events_before_it(
    new_world: NewWorld, sent: list[str]
) -> None:
    """A driver that is killed in between would leave an event that the next one takes for that of the replay."""
    world = new_world({1: "fatal", 2: "complete"})
    driver = world.new_driver(max_pending=1)
    driver.open()
    while 1 not in world.dead_letters():
        driver.step()
        world.work()
    assert DeadLetters(world.acker).replay(world.dead_letters()[1])
    world.clock.advance(REQUESTS_EVERY_MS)
    sent.clear()
    driver.step()
    assert [name for name in sent if name in OF_A_ROUND] == ["XREADGROUP", "release", "accept"]
    driver.close()


def full(*args: Any, **options: Any) -> Any:
    raise MemoryFull("There is none left.")


def test_what_is_settled_is_released_though_nothing_can_be_emitted(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world({1: "complete", 2: "complete"})
    acker = world.new_acker()
    driver = world.new_driver(acker, max_pending=1)
    driver.open()
    while not world.queue:
        driver.step()
    world.work()
    monkeypatch.setattr(acker, "init", full)
    driver.step()
    driver.step()
    assert world.disk.settled == {1: "acked"}
    assert world.acker.shards.unread("completions", world.acker.spout_number(SPOUT)) == [0]
    driver.close()


def test_completions_do_not_wait_for_failures_that_cannot_be_noted_and_no_more_of_those_are_read(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world({1: "fail once", 2: "complete", 3: "fail once"})
    driver = world.new_driver()
    driver.open()
    while not world.queue:
        driver.step()
    monkeypatch.setattr(RetryBook, "note", full)
    first, *others = world.queue
    for some in ([first], others):
        world.queue = some
        world.work()
        driver.step()
    assert world.disk.settled == {2: "acked"}
    failures = world.acker.shards.keys[0].failures(world.acker.spout_number(SPOUT))
    assert world.client.xlen(failures) == 2
    assert world.client.xpending(failures, GROUP)["pending"] == 1
    monkeypatch.undo()
    world.live(driver)
    driver.close()
    world.check()


def test_a_driver_is_not_idle_before_the_store_may_forget_the_last_event(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world({1: "complete"})
    acker = world.new_acker()
    driver, idle, release = world.new_driver(acker), list[bool](), acker.shards.release

    def look(*args: Any) -> None:
        idle.append(driver.is_idle())
        release(*args)

    monkeypatch.setattr(acker.shards, "release", look)
    driver.open()
    while not (idle and driver.is_idle()):
        driver.step()
        world.work()
    assert idle == [False]
    driver.close()
