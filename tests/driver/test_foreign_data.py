"""A driver goes on when another program has written into the keys of its spout."""

from __future__ import annotations

import json
from threading import Event

import pytest

from redis_acker.errors import SpoutTaken, Unreadable
from redis_acker.retries.book import DeadLetter, FailedAttempt, Retry, RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.retries.requests import ReplayRequests, Requested
from redis_acker.retries.withdrawals import Choice, Owner, Withdrawal
from redis_acker.store.lease import Lease
from redis_acker.store.quarantine import Quarantine
from redis_acker.views.trace import trace
from tests.driver.conftest import NewWorld
from tests.driver.test_requests import failed_without_driver
from tests.driver.world import SPOUT, World

GOOD = Retry([FailedAttempt(1, "failed", "task", "broken", 1)], 0).to_json()
WITH_PAYLOAD = Retry([FailedAttempt(1, "failed", "task", "broken", 1)], 0, [1]).to_json().encode()
ATTEMPT = {"attempt": 1, "reason": "failed", "component": "", "error": "", "at_ms": 1}

JUNK: dict[str, bytes] = {
    "i:1": b"junk",
    "s:no object": b"[]",
    "s:no history": b"{}",
    "s:deep": b"[" * 100_000,
    "s:digits": b'{"due_ms": ' + b"9" * 5_000 + b', "history": []}',
    "s:history": b'{"due_ms": 1, "history": [{"attempt": "1"}]}',
    "s:attempt": json.dumps({"due_ms": 1, "history": [{**ATTEMPT, "attempt": 10**9}]}).encode(),
    "s:payload": b'{"due_ms": 1, "history": [], "payload": 7}',
    "s:due": json.dumps({"due_ms": 10**4000, "history": []}).encode(),
    "s:at": json.dumps({"due_ms": 1, "history": [{**ATTEMPT, "at_ms": 10**400}]}).encode(),
    "s:inf": json.dumps({"due_ms": float("inf"), "history": []}).encode(),
    "i:" + "9" * 30: WITH_PAYLOAD,
    "s:" + "x" * 2_000: WITH_PAYLOAD,
    "i:x": GOOD.encode(),
    "i:007": GOOD.encode(),
    "b:?": GOOD.encode(),
    "s:\x1b[31m": b"\x1b[31m",
}


def put_junk(world: World, key: str) -> None:
    for name, value in JUNK.items():
        world.client.hset(key, name, value)
    world.client.hset(key, b"s:\xff", GOOD)


@pytest.mark.parametrize("place", ["completions", "failures", "retries", "requests", "dead"])
def test_junk_in_the_keys_of_a_spout_stops_no_message(new_world: NewWorld, place: str, strict_log: None) -> None:
    world = new_world({1: "complete", 2: "fail once", 3: "fail", 4: "fatal"})
    keys, number = world.acker.shards.keys[0], world.acker.spout_number(SPOUT)
    key = getattr(keys, place)(number)
    if place in ("completions", "failures"):
        world.client.xadd(key, {"x": "y"})
        expected = 1
    else:
        put_junk(world, key)
        expected = len(JUNK) + 1
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    driver.close()
    assert world.disk.settled == {1: "acked", 2: "acked", 3: "dead", 4: "dead"}
    assert world.dead_letters().keys() == {3, 4}
    assert len(Quarantine(world.acker.shards)) == expected
    world.client.delete(keys.quarantine)
    world.check()


def test_a_drain_and_a_replay_leave_out_what_makes_no_sense(new_world: NewWorld) -> None:
    world = new_world({1: "fail once", 2: "fail once"})
    keys, number = world.acker.shards.keys[0], world.acker.spout_number(SPOUT)
    world.client.xadd(keys.failures(number), {"at_ms": "1", "items": "x"})
    world.client.hset(keys.withdrawn(number), mapping={"1-1": "junk", "2-2": '{"fields": {}, "owner": {}}'})
    no_pid = {"host": "", "pid": float("inf"), "started": "", "file": "", "where": ""}
    world.client.hset(keys.withdrawn(number), "3-3", json.dumps({"fields": {}, "owner": no_pid}))
    roots = failed_without_driver(world)
    assert sorted(root.message_id for root in roots if root.message_id is not None) == [1, 2]
    assert len(Quarantine(world.acker.shards)) == 4
    world.client.hset(keys.requests(number), "i:1", "junk")
    world.client.hset(keys.retries(number), "i:2", "junk")
    assert ReplayRequests(world.acker).request(roots) == Requested(noted=2, again=0)
    assert {one: retry.attempt for one, retry in RetryBook(world.acker, SPOUT).load().items()} == {1: 1, 2: 1}
    assert len(Quarantine(world.acker.shards)) == 6


def test_looking_at_a_root_passes_over_what_makes_no_sense(new_world: NewWorld) -> None:
    world = new_world()
    roots = world.acker.allocate(SPOUT, 1)
    world.acker.init(roots, [7], message_ids=["m"])
    world.acker.fail(roots, component="task", error="broken")
    keys, number = world.acker.shards.keys[0], world.acker.spout_number(SPOUT)
    world.client.xadd(keys.failures(number), {"x": "y"})
    for key in (keys.dead(number), keys.retries(number)):
        world.client.hset(key, "s:m", "junk")
    found = trace(world.acker, int(roots[0]))
    assert (found.state.state, found.history, found.is_dead) == ("finished", [], False)
    assert found.event is not None
    assert len(Quarantine(world.acker.shards)) == 0
    assert [one.error for one in Withdrawal(world.acker, Owner.here("a test"), Choice()).peek()] == ["broken"]


def test_a_letter_that_makes_no_sense_is_neither_listed_nor_in_the_way_of_a_new_one(new_world: NewWorld) -> None:
    world = new_world()
    letter = DeadLetter("m", SPOUT, [FailedAttempt(1, "failed", "", "", 1)], False, None)
    key = world.acker.shards.keys[0].dead(world.acker.spout_number(SPOUT))
    world.client.hset(key, mapping={"s:m": "junk", "s:other": letter.to_json(), "s:foreign": letter.to_json()})
    assert DeadLetters(world.acker).find("m") == []
    RetryBook(world.acker, SPOUT).bury(letter)
    assert list(DeadLetters(world.acker)) == [letter]
    assert len(Quarantine(world.acker.shards)) == 3
    with pytest.raises(Unreadable, match="another message"):
        DeadLetter.from_json("payments", b"s:m", letter.to_json().encode())


def test_the_name_of_a_holder_is_escaped_where_the_spout_is_refused(new_world: NewWorld) -> None:
    world = new_world({})
    world.client.set(world.acker.shards.keys[0].lease(world.acker.spout_number(SPOUT)), b"\x1b[31m\x07\n", px=60_000)
    with pytest.raises(SpoutTaken) as refused:
        world.new_driver().open()
    assert str(refused.value).isprintable()
    world.client.delete(world.acker.shards.keys[0].lease(world.acker.spout_number(SPOUT)))


def test_a_lease_that_never_ends_is_not_one(new_world: NewWorld) -> None:
    world = new_world({1: "complete"})
    world.client.set(world.acker.shards.keys[0].lease(world.acker.spout_number(SPOUT)), "junk")
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    driver.close()
    world.check()


def test_the_name_of_a_holder_is_escaped_where_a_driver_has_lost_its_lease(new_world: NewWorld) -> None:
    world = new_world({})
    lease = Lease(world.acker, SPOUT, for_ms=60_000)
    assert lease.take(wait=False, stop=Event())
    world.client.set(world.acker.shards.keys[0].lease(world.acker.spout_number(SPOUT)), b"\x1b[31m\x07\n", px=60_000)
    with pytest.raises(SpoutTaken, match="taken over") as refused:
        lease.begin("5")
    assert str(refused.value).isprintable()
    world.client.delete(world.acker.shards.keys[0].lease(world.acker.spout_number(SPOUT)))
