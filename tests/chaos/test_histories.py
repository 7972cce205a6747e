"""Servers that are restarted or replaced, and may have lost the last writes: final events say so."""

from __future__ import annotations

import secrets
from functools import partial

import pytest
import redis

from redis_acker import Acker, Completion, Failure, Rotator
from redis_acker.store.rotator import Rotation
from tests.backends import Keeper
from tests.clock import Clock
from tests.servers import HOST, Server, start_server
from tests.store.connect.ledger import ONE_SERVER_KINDS, SPOUT, TICK_MS, start_roots
from tests.waiting import wait_until


@pytest.fixture(params=ONE_SERVER_KINDS)
def server(request: pytest.FixtureRequest, keeper: Keeper) -> Server:
    return keeper.keep(start_server(request.param))


def roll_back(server: Server, older: bytes) -> None:
    server.kill()
    (server.directory / "dump.rdb").write_bytes(older)
    server.restart()


def saved(server: Server) -> bytes:
    with server.client() as client:
        client.save()
    return (server.directory / "dump.rdb").read_bytes()


def completions(acker: Acker) -> list[Completion]:
    with acker.completions(SPOUT) as reader:
        return list(reader.consume())


def timeouts(acker: Acker, clock: Clock) -> list[Failure]:
    for _ in range(3):
        clock.advance(TICK_MS)
        Rotator(acker).once()
    with acker.failures(SPOUT) as reader:
        return list(reader.consume())


def test_a_second_event_after_lost_writes_says_that_it_is_of_another_history(
    server: Server, namespace: str, clock: Clock
) -> None:
    with Acker(server.url, namespace=namespace, clock=clock) as acker:
        roots, edges = start_roots(acker, 20)
        older = saved(server)
        acker.ack(roots, edges)
        [first] = completions(acker)
        assert first.history.startswith(f"{clock()}-")
        assert first.after_restart == [False] * 20
        clock.advance(1)
        roll_back(server, older)
        [second] = timeouts(acker, clock)
        assert second.roots.tolist() == first.roots.tolist() == roots.tolist()
        assert second.history != first.history
        assert second.after_restart == [True] * 20
        later, edges = start_roots(acker, 5)
        acker.ack(later[:2], edges[:2])
        [third], [fourth] = completions(acker), timeouts(acker, clock)
        assert third.history == fourth.history == second.history
        assert third.after_restart == [False] * 2
        assert fourth.after_restart == [False] * 3


def test_a_rotator_sees_a_restart_before_anything_times_out(
    server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Acker(server.url, namespace=namespace, shards=2, timeout_ms=600_000) as acker:
        roots, edges = start_roots(acker, 20)
        before = histories(acker)
        rotator = Rotator(acker)
        rotator.once()
        monkeypatch.setattr(rotator, "once", lambda: Rotation(0, 0, 0, 600_000))  # the next is far away
        with rotator.start():
            roll_back(server, saved(server))
            wait_until(lambda: not {*before} & {*histories(acker)})
        acker.ack(roots, edges)
        assert all(all(event.after_restart) for event in completions(acker))


def test_a_drain_after_a_restart_says_so_though_nobody_has_looked(
    server: Server, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Acker(server.url, namespace=namespace, shards=1, clock=clock) as acker:
        start_roots(acker, 20)
        rotator = Rotator(acker)
        with monkeypatch.context() as patch:
            patch.setattr(rotator, "drain", lambda shard: (0, 0))  # the rotator dies before it
            for _ in range(3):
                clock.advance(TICK_MS)
                rotator.once()
        roll_back(server, saved(server))
        assert rotator.drain(0) == (20, 0)
        with acker.failures(SPOUT) as reader:
            [event] = reader.consume()
        assert event.after_restart == [True] * 20


def histories(acker: Acker) -> list[bytes]:
    return [acker.shards.ask(shard, "HGET", keys.meta, "history") for shard, keys in enumerate(acker.shards.keys)]


def is_linked(replica: redis.Redis) -> bool:
    return bool(replica.info("replication")["master_link_status"] == "up")


def test_servers_that_take_turns_begin_a_history_each_time(keeper: Keeper, namespace: str, clock: Clock) -> None:
    """The first is master again in the end: it is the same process, and not the same history."""
    one, other = (keeper.keep(start_server("redis-7.0", "--repl-diskless-sync-delay", "0")) for _ in range(2))
    found = []
    for master, replica in ((one, other), (other, one), (one, other)):
        with master.client() as client, replica.client() as copy:
            client.replicaof("NO", "ONE")
            copy.replicaof(HOST, master.port)
            wait_until(partial(is_linked, copy), 30)
        clock.advance(1)
        with Acker(master.url, namespace=namespace, clock=clock) as acker:
            found.append(histories(acker)[0])
        with master.client() as client:
            client.wait(1, 10_000)
    assert len({*found}) == 3
    assert found[0].partition(b"-")[2] == found[2].partition(b"-")[2]


def test_a_history_that_another_program_wrote_is_replaced(server: Server, namespace: str, clock: Clock) -> None:
    with Acker(server.url, namespace=namespace, clock=clock) as acker:
        true = histories(acker)
        for junk in ("", "x", "1-", "-", secrets.token_hex(5000), true[0].decode()[:-1]):
            acker.shards.ask(0, "HSET", acker.shards.keys[0].meta, "history", junk)
            acker.ack(*start_roots(acker, 1))
            [done] = completions(acker)
            assert len(done.history) <= 64
            Rotator(acker).once()
            [found] = histories(acker)
            assert found.partition(b"-")[::2] == (b"%d" % clock(), true[0].partition(b"-")[2])


def test_a_server_that_does_not_tell_has_no_history(server: Server, namespace: str, clock: Clock) -> None:
    with server.client() as client:
        client.acl_setuser("shy", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"])
    with Acker(f"redis://shy:x@{HOST}:{server.port}", namespace=namespace, clock=clock) as acker:
        roots, edges = start_roots(acker, 3)
        acker.ack(roots[:1], edges[:1])
        [done], [late] = completions(acker), timeouts(acker, clock)
        assert done.history == late.history == ""
        assert done.after_restart + late.after_restart == [False] * 3
