"""What a stolen password of an executor or a rotator is good for, and what not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from redis_acker import Acker, new_edges
from redis_acker.store.scripts import script
from redis_acker.store.transport import is_denied
from tests.backends import Servers, make_backend
from tests.cli.acting_commands.house import House
from tests.cli.acting_commands.shop import SPOUT


@pytest.fixture(params=["redis-7.0", "valkey-9.1", "cluster"])
def house(request: pytest.FixtureRequest, servers: Servers, namespace: str) -> Iterator[House]:
    found = House(servers.get(request.param), namespace, timeout_ms=60_000)
    yield found
    found.close()
    make_backend(request.param, servers).delete_keys(namespace)


@pytest.fixture
def acker(house: House) -> Acker:
    """With pending roots, a completion and a failure."""
    ours = house.shop.acker
    roots, edges = ours.allocate(SPOUT, 30), new_edges(30)
    ours.init(roots, edges)
    ours.ack(roots[:5], edges[:5])
    ours.fail(roots[5:6])
    return ours


def assert_refused(house: House, role: str, *command: Any) -> None:
    """On whichever node has the key."""
    for node in house.nodes:
        with redis.Redis.from_url(house.user_url(node, role)) as client:
            with pytest.raises(redis.exceptions.ResponseError) as caught:
                client.execute_command(*command)
            if not isinstance(caught.value, redis.exceptions.MovedError):
                assert is_denied(caught.value), (command, str(caught.value))


def test_an_executor_cannot_change_settings_or_the_clock_of_rotation(house: House, acker: Acker) -> None:
    meta = acker.shards.keys[0].meta
    before = acker.shards.ask(0, "HGETALL", meta)
    for command in (
        ("HSET", meta, "timeout_ms", 1),
        ("HINCRBY", meta, "block_size", 1),
        ("HINCRBY", meta, "tick", 100),
        ("HDEL", meta, "shards"),
        ("DEL", meta),
        ("RENAME", meta, meta),
        ("PEXPIRE", meta, 1),
        ("SET", meta, "x"),
        ("BITOP", "XOR", meta, meta),
    ):
        assert_refused(house, "executor", *command)
    assert acker.shards.ask(0, "HGETALL", meta) == before


def test_an_executor_cannot_bring_a_script_of_its_own(house: House) -> None:
    for command in (
        ("SCRIPT", "LOAD", "while true do end"),
        ("EVAL", "return 1", 0),
        ("EVAL_RO", "return 1", 0),
        ("SCRIPT", "FLUSH"),
        ("FUNCTION", "LOAD", "#!lua name=x\nredis.register_function('x', function() end)"),
    ):
        assert_refused(house, "executor", *command)


def test_an_executor_cannot_use_other_scripts_for_it(house: House, acker: Acker) -> None:
    house.shop.succeed("scripts", "load")
    keys = acker.shards.keys[0]
    fresh = keys.meta.replace(":0}", ":7}")
    assert_refused(house, "executor", "EVALSHA", script("open").sha, 1, fresh, "1", "", "timeout_ms", "1")
    moved = ("EVALSHA", script("rotate").sha, len(keys.fixed), *keys.fixed, acker.settings.buckets, "9" * 13, "", 1)
    assert_refused(house, "executor", *moved)
    assert_refused(house, "executor", "EVALSHA", script("release").sha, 1, keys.completions(1), "drivers", "0-1")
    number = acker.spout_number(SPOUT)
    assert_refused(house, "executor", "EVALSHA", script("lease").sha, 1, keys.lease(number), "me", 10_000)
    bury = ("EVALSHA", script("bury").sha, 2, keys.dead(number), keys.counters, "s:1", "{}", number)
    assert_refused(house, "executor", *bury)


@pytest.mark.parametrize("role", ["executor", "rotator"])
def test_neither_can_delete_records_whole_or_take_events_out_of_streams(house: House, acker: Acker, role: str) -> None:
    keys, number = acker.shards.keys[0], acker.spout_number(SPOUT)
    pending = acker.pending_count()
    for key in (keys.heads(0), keys.completions(number), keys.failures(number), keys.counters, keys.quarantine):
        assert_refused(house, role, "DEL", key)
        assert_refused(house, role, "SET", key, "x")
        assert_refused(house, role, "PEXPIRE", key, 1)
    for key in (keys.completions(number), keys.failures(number)):
        assert_refused(house, role, "XDEL", key, "0-1")
        assert_refused(house, role, "XTRIM", key, "MAXLEN", 0)
        assert_refused(house, role, "XRANGE", key, "-", "+")
        assert_refused(house, role, "XGROUP", "CREATE", key, "g", "0")
    assert acker.pending_count() == pending
    assert sum(acker.shards.unread("completions", number)) > 0


def test_an_executor_can_only_add_to_what_is_kept_of_failed_rows(house: House, acker: Acker) -> None:
    rows = acker.shards.keys[0].failed_rows("run")
    assert_refused(house, "executor", "HGETALL", rows)
    assert_refused(house, "executor", "DEL", rows)
