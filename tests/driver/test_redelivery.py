"""Sources that hand out messages twice, too late, or under ids that cannot be stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from redis_acker import FailedTuple, Message, Spout, SpoutDriver
from redis_acker.errors import BadInput, ServerUnavailable
from redis_acker.store.message_ids import MAX_ID_BYTES, MessageId
from tests.driver.conftest import NewWorld
from tests.driver.faults import unavailable, watched_acker
from tests.driver.source import DurableSpout
from tests.driver.world import Router, World


class Batches(Spout):
    """Hands out given batches."""

    fields = ("id", "plan")

    def __init__(self, *batches: Sequence[Message]) -> None:
        self._batches = list(batches)
        self.acked: list[MessageId] = []

    def next_batch(self, limit: int) -> Iterable[Message]:
        return self._batches.pop(0) if self._batches else []

    def ack(self, message_id: MessageId) -> None:
        self.acked.append(message_id)


def message(message_id: Any) -> Message:
    return Message([message_id, "complete"], id=message_id)


def open_driver(world: World, spout: Spout) -> SpoutDriver:
    driver = world.new_driver(spout=spout)
    driver.open()
    return driver


# -- twice ---------------------------------------------------------------------------------------------------------


def test_a_message_in_work_is_not_emitted_again(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    spout = DurableSpout(world.disk)
    driver = open_driver(world, spout)
    driver.step()
    for _ in range(3):
        spout.add(1)
        driver.step()
    assert world.acker.pending_count() == 1
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1]
    world.check()


def test_a_message_that_is_twice_in_one_batch_is_emitted_once(new_world: NewWorld) -> None:
    world = new_world({1: "complete", 2: "complete"})
    spout = DurableSpout(world.disk)
    driver = open_driver(world, spout)
    for message_id in (1, 2, 1):
        spout.add(message_id)
    world.live(driver)
    driver.close()
    assert (world.attempts_at(1), world.attempts_at(2)) == ([1], [1])
    world.check()


def test_a_message_that_failed_and_is_twice_in_one_batch_is_emitted_once_more(new_world: NewWorld) -> None:
    world = new_world({1: "fail once"})
    spout = DurableSpout(world.disk)
    driver = open_driver(world, spout)
    driver.step()
    world.work()
    driver.step()
    for _ in range(3):
        spout.add(1, "fail once")
        driver.step()
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1, 2]
    world.check()


class SlowToForget(DurableSpout):
    """Hands out after a restart what was settled before, as one that keeps only an offset does."""

    def open(self, context: Any) -> None:
        super().open(context)
        self._waiting.clear()
        self._waiting.extend(self.disk.plans)


@pytest.mark.parametrize("plan", ["complete", "fatal"])
def test_a_message_that_was_finished_while_no_driver_ran_is_settled_and_not_emitted(
    new_world: NewWorld, plan: str
) -> None:
    world = new_world({1: plan})
    first = open_driver(world, DurableSpout(world.disk))
    first.step()
    first.close()
    world.work()
    spout = SlowToForget(world.disk)
    second = open_driver(world, spout)
    second.step()
    assert world.disk.settled == {1: "acked" if plan == "complete" else "dead"}
    world.disk.settled.clear()
    second.step()
    assert world.disk.settled == {1: "acked" if plan == "complete" else "dead"}, "it is told again"
    second.close()
    assert world.attempts_at(1) == [1]
    world.check()


def test_a_finished_message_is_not_emitted_though_an_error_stops_the_rest_of_its_batch(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    first = open_driver(world, DurableSpout(world.disk))
    first.step()
    first.close()
    world.work()
    world.disk.plans[2] = "complete"
    points = unavailable(lambda number, where: where == "before allocate" and not points.hits)
    second = world.new_driver(watched_acker(world.new_acker(), points), spout=SlowToForget(world.disk))
    second.open()
    second.step()
    with pytest.raises(ServerUnavailable):
        second.step()
    world.live(second)
    second.close()
    assert (world.attempts_at(1), world.attempts_at(2)) == ([1], [1])
    world.check()


def test_a_message_that_comes_again_after_it_was_settled_is_a_new_one(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    spout = DurableSpout(world.disk)
    driver = open_driver(world, spout)
    world.live(driver)
    world.disk.settled.clear()
    world.completed.clear()
    world.deliveries.clear()
    spout.add(1)
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1]
    world.check()


# -- ids that cannot be stored ---------------------------------------------------------------------------------------

BAD_IDS: dict[str, list[Any]] = {
    "a list": [1, [2]],
    "a float": [1.5],
    "a bool": [True],
    "an object": [object()],
    "too long": ["a", "x" * (MAX_ID_BYTES + 1)],
    "too large": [1, 1 << 63],
    "no text": ["\ud800"],
    "of two types": [1, "1"],
    "bytes and text": [b"a", "a"],
}


@pytest.mark.parametrize("ids", BAD_IDS.values(), ids=BAD_IDS.keys())
def test_an_id_that_cannot_be_stored_is_refused_by_the_name_of_the_spout_before_anything_is_emitted(
    new_world: NewWorld, ids: list[Any]
) -> None:
    world = new_world()
    spout = Batches([Message(["untracked", "complete"]), *map(message, ids)])
    driver = open_driver(world, spout)
    with pytest.raises(BadInput, match="Spout 'orders' hands out a message id that cannot be stored"):
        driver.step()
    driver.close()
    assert (world.deliveries, spout.acked, world.acker.pending_count()) == ([], [], 0)


def test_ids_of_two_types_are_refused_whether_they_come_in_one_batch_or_two(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    driver = open_driver(world, Batches([message(1)], [message("2")]))
    driver.step()
    with pytest.raises(BadInput, match=r"Spout 'orders'.*int, str"):
        driver.step()
    driver.close()
    assert [one.message_id for one in world.deliveries] == [1]


@pytest.mark.parametrize("ids", [["", "ü" * 512], [b"", b"\x00" * MAX_ID_BYTES], [-(1 << 63), (1 << 63) - 1]])
def test_ids_up_to_the_limits_come_back_as_they_are(new_world: NewWorld, ids: list[MessageId]) -> None:
    world = new_world(dict.fromkeys(ids, "fail once"))
    driver = open_driver(world, DurableSpout(world.disk))
    world.live(driver)
    driver.close()
    world.check()


def test_a_message_that_no_stream_takes_is_refused_before_anything_is_emitted(new_world: NewWorld) -> None:
    class Picky(Router):
        def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
            if stream == "unknown":
                raise BadInput("no such stream")
            return super().targets(stream, values)

    world = new_world()
    spout = Batches([Message(["untracked", ""]), message(1), Message([2, ""], id=2, stream="unknown")])
    driver = world.new_driver(spout=spout, router=Picky(world))
    driver.open()
    with pytest.raises(BadInput, match="no such stream"):
        driver.step()
    driver.close()
    assert (world.deliveries, spout.acked, world.acker.pending_count()) == ([], [], 0)


# -- outside the trees -----------------------------------------------------------------------------------------------


def test_messages_without_id_or_without_listener_are_not_tracked(new_world: NewWorld) -> None:
    class Deaf(Router):
        delivered: list[Any]

        def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
            return [] if stream == "nobody" else ["task"]

        def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Any) -> None:
            self.delivered.append((values, dict(anchors)))

    world = new_world()
    spout = Batches([Message(["untracked"]), Message(["unheard"], id=1, stream="nobody")])
    router = Deaf(world)
    router.delivered = []
    driver = world.new_driver(spout=spout, router=router)
    driver.open()
    driver.step()
    driver.close()
    assert (router.delivered, spout.acked, world.acker.pending_count()) == ([(["untracked"], {})], [1], 0)


def test_a_message_that_the_source_cannot_read_becomes_a_dead_letter_and_is_not_emitted(new_world: NewWorld) -> None:
    world = new_world()
    spout = Batches([Message(["{"], id=1, error="no JSON"), message(2)])
    driver = open_driver(world, spout)
    driver.step()
    driver.step()
    driver.close()
    assert [one.message_id for one in world.deliveries] == [2]
    letter = world.dead_letters()[1]
    assert (letter.fatal, letter.payload, [one.error for one in letter.history]) == (True, ["{"], ["no JSON"])
    assert spout.acked == [1]


@pytest.mark.parametrize("why", ["no task is right for it", ""])
def test_a_message_that_its_router_fails_becomes_a_dead_letter_and_the_others_go_on(
    new_world: NewWorld, why: str
) -> None:
    class Picky(Router):
        def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
            if values[0] == 2:
                raise FailedTuple(why)
            return super().targets(stream, values)

    world = new_world()
    spout = Batches([message(1), message(2), Message([2, "complete"]), message(3)])
    driver = world.new_driver(spout=spout, router=Picky(world))
    driver.open()
    for _ in range(2):
        driver.step()
    driver.close()
    assert [one.message_id for one in world.deliveries] == [1, 3]
    letter = world.dead_letters()[2]
    assert (letter.fatal, letter.payload, letter.is_readable) == (True, [2, "complete"], True)
    assert [one.error for one in letter.history] == [why or "FailedTuple"]
    assert spout.acked == [2]
