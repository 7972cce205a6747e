"""Replays of dead letters."""

from __future__ import annotations

import pytest

from redis_acker import RetryPolicy
from redis_acker.driver.requests import REQUESTS_EVERY_MS
from redis_acker.errors import BadInput
from redis_acker.retries.book import RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.store.message_ids import MessageId
from tests.driver.conftest import NewWorld
from tests.driver.source import DurableSpout, Forgetful
from tests.driver.world import SPOUT, World


def dead_world(new_world: NewWorld, plans: dict[MessageId, str]) -> World:
    """A world in which everything has died, and whose task has learnt better since."""
    world = new_world(plans)
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    driver.close()
    return world


def learn(world: World, plan: str = "complete") -> None:
    world.disk.plans = dict.fromkeys(world.disk.plans, plan)
    world.disk.mistakes.clear()


class Settled(DurableSpout):
    """A source that does not mind to be told again what became of a message."""

    def ack(self, message_id: MessageId) -> None:
        assert self.disk.settled[message_id] == "dead"

    def fail(self, message_id: MessageId) -> None:
        raise AssertionError(f"{message_id!r} is settled, and its values are known")

    dead = ack


class Renamed(DurableSpout):
    """A source whose ids were numbers, and are texts now."""

    def ack(self, message_id: MessageId) -> None:
        if isinstance(message_id, str):
            super().ack(message_id)


def test_letters_with_ids_of_another_kind_than_those_of_the_source_are_emitted_by_themselves(
    new_world: NewWorld,
) -> None:
    world = dead_world(new_world, {1: "fail", 2: "fail"})
    letters = DeadLetters(world.acker)
    assert all(letters.replay(letter) for letter in list(letters))
    world.disk.plans |= {"three": "complete", "four": "complete"}
    learn(world)
    driver = world.new_driver(spout=Renamed(world.disk))
    driver.open()
    world.live(driver)
    driver.close()
    assert world.disk.settled.keys() == {1, 2, "three", "four"}
    assert world.attempts_at(1) == world.attempts_at(2) == [1, 2, 3, 4]
    assert len(letters) == 0


def test_a_dead_message_is_emitted_from_its_letter_with_its_history_kept(new_world: NewWorld) -> None:
    world = dead_world(new_world, {1: "fail", 2: "fail"})
    letters = DeadLetters(world.acker)
    for letter in list(letters):
        assert letters.replay(letter)
        assert not letters.replay(letter)
    assert len(letters) == 0
    driver = world.new_driver(spout=Settled(world.disk))
    driver.open()
    for _ in range(20):
        driver.step()
        world.clock.advance(100)
    assert world.attempts_at(1) == world.attempts_at(2) == [1, 2, 3, 4]
    world.work()
    driver.step()
    driver.close()
    again = world.dead_letters()
    assert {one: [had.attempt for had in letter.history] for one, letter in again.items()} == {
        1: [1, 2, 3, 4],
        2: [1, 2, 3, 4],
    }
    assert again[1].payload == [1, "fail"]


@pytest.mark.parametrize("max_attempts", [4, 6])
def test_a_dead_message_that_is_tried_again_more_than_once_never_needs_the_source(
    new_world: NewWorld, max_attempts: int
) -> None:
    world = dead_world(new_world, {1: "fail"})
    [letter] = list(DeadLetters(world.acker))
    DeadLetters(world.acker).replay(letter)
    world.policy = RetryPolicy(max_attempts=max_attempts, first_ms=0)
    for _ in range(max_attempts - 3):  # each attempt by another driver
        driver = world.new_driver(spout=Settled(world.disk))
        driver.open()
        for _ in range(5):
            driver.step()
        driver.close()
        world.work()
    driver = world.new_driver(spout=Settled(world.disk))
    driver.open()
    driver.step()
    driver.close()
    assert world.attempts_at(1) == list(range(1, max_attempts + 1))
    assert world.dead_letters()[1].payload == [1, "fail"]


def test_many_dead_messages_come_back_no_more_than_max_pending_at_once(new_world: NewWorld) -> None:
    world = dead_world(new_world, dict.fromkeys(range(20), "fatal"))
    letters = DeadLetters(world.acker)
    for letter in list(letters):
        letters.replay(letter)
    before = len(world.deliveries)
    driver = world.new_driver(spout=Settled(world.disk), max_pending=6)
    driver.open()
    for _ in range(3):
        driver.step()
    assert len(world.deliveries) - before == 6
    learn(world)
    for _ in range(10):
        world.work()
        driver.step()
    driver.close()
    assert len(world.deliveries) - before == 20
    assert driver.counters.acked == 20


def test_a_message_that_dies_as_its_letter_is_replayed_is_not_lost(new_world: NewWorld) -> None:
    """The driver forgets what it knew of a dead message after the letter is there for others to see."""
    world = new_world({1: "fatal"})
    driver = world.new_driver()

    class Impatient(DurableSpout):
        def dead(self, message_id: MessageId) -> None:
            super().dead(message_id)
            letters = DeadLetters(world.acker)
            for letter in list(letters):
                assert letters.replay(letter)

    driver = world.new_driver(spout=Impatient(world.disk))
    driver.open()
    driver.step()
    world.work()
    driver.step()
    learn(world)
    world.clock.advance(REQUESTS_EVERY_MS)
    driver.step()
    world.work()
    driver.step()
    driver.close()
    assert world.attempts_at(1) == [1, 2]
    assert driver.counters.acked == 1
    assert RetryBook(world.acker, SPOUT).load() == {}


def test_a_message_that_an_earlier_driver_emitted_dies_and_is_emitted_again_by_the_same_driver(
    new_world: NewWorld,
) -> None:
    """The driver knows it as finished, should the source hand it out: that must not stop the replay."""
    world = new_world({1: "fail"})
    first = world.new_driver()
    first.open()
    first.step()
    world.let_lease_run_out()
    world.policy = RetryPolicy(max_attempts=1)
    driver = world.new_driver(spout=Forgetful(world.disk))
    driver.open()
    driver.step()
    world.work()
    driver.step()
    [letter] = list(DeadLetters(world.acker))
    assert letter.payload is None, "it was not this driver that emitted it"
    world.disk.settled.clear()
    DeadLetters(world.acker).replay(letter, from_source=True)
    world.clock.advance(REQUESTS_EVERY_MS)
    for _ in range(3):
        driver.step()
    driver.close()
    assert world.attempts_at(1) == [1, 2]


def test_a_letter_without_values_is_replayed_only_from_the_source(new_world: NewWorld) -> None:
    world = dead_world(new_world, {1: "fatal"})
    [letter] = list(DeadLetters(world.acker))
    empty = type(letter)(**{**vars(letter), "payload": None})
    RetryBook(world.acker, SPOUT)
    letters = DeadLetters(world.acker)
    with pytest.raises(BadInput, match="no values to emit"):
        letters.replay(empty)
    assert not letters.replay(empty, from_source=True), "it is not the letter that is there"
    assert letters.replay(letter, from_source=True)
    driver = world.new_driver(spout=Forgetful(world.disk))
    learn(world)
    world.disk.settled.clear()
    driver.open()
    world.live(driver)
    driver.close()
    assert world.attempts_at(1) == [1, 2]
