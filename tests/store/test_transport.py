"""Sending commands: in order, pipelined, again after trouble, with one clear error when that does not help."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis import exceptions as redis_errors

from redis_acker import Acker, new_edges
from redis_acker.errors import (
    AccessDenied,
    AckerError,
    BadInput,
    MemoryFull,
    ScriptFailed,
    ServerUnavailable,
    WrongKeyType,
)
from redis_acker.store.connect import Fleet
from redis_acker.store.transport import IN_FLIGHT, Command, Transport, _Line, _Trouble, translate
from tests.backends import Servers
from tests.servers import EVERY_WRITE_TO_DISK, Server, start_server
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def server(servers: Servers) -> Server:
    found = servers.get("redis-7.0")
    assert isinstance(found, Server)
    return found


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with server.client() as found:
        yield found


@pytest.fixture
def transport(client: redis.Redis) -> Transport:
    return Transport(Fleet([client], []), retry_for_s=0)


def echo(text: object, shard: int = 0) -> Command:
    return Command(shard, ("ECHO", str(text)))


@pytest.mark.parametrize("count", [0, 1, IN_FLIGHT, IN_FLIGHT + 1, 100])
def test_replies_come_in_the_order_of_the_commands(transport: Transport, count: int) -> None:
    assert transport.run(echo(i) for i in range(count)) == [str(i).encode() for i in range(count)]


def test_replies_of_several_servers_come_in_the_order_of_the_commands(servers: Servers, namespace: str) -> None:
    clients = [servers.client(kind) for kind in ("redis-7.0", "redis-6.2")]
    for number, one in enumerate(clients):
        one.set(namespace, number)
    transport = Transport(Fleet(clients, []), retry_for_s=0)
    assert transport.run(Command(i, ("GET", namespace)) for i in range(50)) == [b"0", b"1"] * 25
    for one in clients:
        one.delete(namespace)


def test_commands_are_drawn_as_they_are_sent(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing the next batches goes on while the server works at the first."""
    drawn: list[int] = []
    drawn_at_reply: list[int] = []
    receive = _Line.receive

    def commands() -> Iterator[Command]:
        for i in range(3 * IN_FLIGHT):
            drawn.append(i)
            yield echo(i)

    def note(self: _Line, work: Any) -> None:
        drawn_at_reply.append(len(drawn))
        receive(self, work)

    monkeypatch.setattr(_Line, "receive", note)
    transport.run(commands())
    assert drawn_at_reply[0] == IN_FLIGHT
    assert drawn_at_reply[-1] == 3 * IN_FLIGHT


def test_a_script_that_the_server_does_not_know_is_loaded(client: redis.Redis, transport: Transport) -> None:
    client.script_flush()
    command = Command.call("spout", 0, ["{t}:spouts"], ["orders", 1, 4095])
    assert transport.run([command] * 20) == [1] * 20
    client.delete("{t}:spouts")


def test_an_error_reply_does_not_reach_the_next_caller(transport: Transport) -> None:
    """The replies behind it are still on the way when it is raised."""
    commands = [*(echo(i) for i in range(5)), Command(0, ("NO_SUCH_COMMAND",)), *(echo(i) for i in range(20))]
    for _ in range(3):
        with pytest.raises(ScriptFailed, match="NO_SUCH_COMMAND"):
            transport.run(commands)
        assert transport.run([echo("next")]) == [b"next"]


def test_commands_that_cannot_be_made_leave_the_connection_clean(transport: Transport) -> None:
    def commands() -> Iterator[Command]:
        yield echo("first")
        raise BadInput("The second is wrong.")

    with pytest.raises(BadInput):
        transport.run(commands())
    assert transport.run([echo("next")]) == [b"next"]


@pytest.mark.parametrize(
    ("error", "expected", "advice"),
    [
        (redis_errors.AuthenticationError("invalid password"), AccessDenied, "check user"),
        (redis_errors.NoPermissionError("no permissions to run the 'evalsha' command"), AccessDenied, "ACL"),
        (
            redis_errors.OutOfMemoryError("command not allowed when used memory > 'maxmemory'"),
            MemoryFull,
            "raise maxmemory",
        ),
        (
            redis_errors.ResponseError("Error running script: -OOM command not allowed when"),
            MemoryFull,
            "raise maxmemory",
        ),
        (redis_errors.ResponseError("WRONGTYPE Operation against a key"), WrongKeyType, "another namespace"),
        (redis_errors.ResponseError("Error running script: WRONGTYPE Operation"), WrongKeyType, "another namespace"),
        (redis_errors.ResponseError("something else"), ScriptFailed, "something else"),
    ],
)
def test_errors_are_told_by_their_kind(error: Exception, expected: type[AckerError], advice: str) -> None:
    found = translate(error)
    assert type(found) is expected
    assert advice in str(found)


class Flaky(Transport):
    """Fails some times before it gets through."""

    failures: list[Exception]

    def _attempt(self, work: Any) -> Any:
        if self.failures:
            return _Trouble(0, self.failures.pop(0))
        return super()._attempt(work)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses, which are noted and not made."""
    found: list[float] = []
    monkeypatch.setattr("redis_acker.store.transport.time.sleep", found.append)
    return found


def test_commands_are_sent_again_with_growing_pauses(client: redis.Redis, pauses: list[float]) -> None:
    transport = Flaky(Fleet([client], []), retry_for_s=3600)
    transport.failures = [redis_errors.ConnectionError("gone")] * 9
    assert transport.run([echo("at last")]) == [b"at last"]
    assert transport.troubles == 9
    assert pauses[0] < pauses[3] < pauses[6] <= 1.0


def test_a_server_that_stays_away_is_one_clear_error(pauses: list[float]) -> None:
    client = redis.Redis.from_url("redis://user:s3cret@127.0.0.1:1/0")
    transport = Transport(Fleet([client], ["redis://user:s3cret@127.0.0.1:1/0"]), retry_for_s=0)
    with pytest.raises(ServerUnavailable, match=r"redis://user:\*\*\*@127.0.0.1:1/0 did not answer within 0 s"):
        transport.run([echo("x")])


def test_a_loading_or_busy_server_is_waited_for(
    client: redis.Redis, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception] = [
        redis_errors.BusyLoadingError("LOADING Redis is loading the dataset in memory"),
        redis_errors.ResponseError("BUSY Redis is busy running a script"),
        redis_errors.ReadOnlyError("You can't write against a read only replica."),
        redis_errors.ResponseError("Error running script: -READONLY You can't write against a read only replica."),
        redis_errors.ResponseError("NOREPLICAS Not enough good replicas to write."),
        redis_errors.MovedError("1 127.0.0.1:7000"),
    ]
    receive = _Line.receive

    def receive_errors_first(self: Any, work: Any) -> None:
        receive(self, work)
        if answers:
            work.replies[0] = answers.pop(0)

    monkeypatch.setattr(_Line, "receive", receive_errors_first)
    assert Transport(Fleet([client], []), retry_for_s=3600).run([echo("ready")]) == [b"ready"]
    assert answers == []
    assert len(pauses) == 6


def test_a_user_without_rights_is_told_so(server: Server, client: redis.Redis, namespace: str) -> None:
    client.acl_setuser("limited", enabled=True, passwords=["+s3cret"], commands=["+@all", "-evalsha"], keys=["*"])
    try:
        url = server.url.replace("//", "//limited:s3cret@")
        with pytest.raises(AccessDenied, match="evalsha") as caught:
            Acker(url, namespace=namespace)
        assert "s3cret" not in str(caught.value)
        with pytest.raises(AccessDenied, match="check user, password"):
            Acker(url.replace("s3cret", "wrong"), namespace=namespace)
    finally:
        client.acl_deluser("limited")


def test_a_pickled_acker_connects_anew_with_the_same_settings(server: Server, namespace: str) -> None:
    with Acker(server.url, namespace=namespace, block_size=7, shards=2) as acker:
        again: Acker = pickle.loads(pickle.dumps(acker))
        roots = acker.allocate("orders", 3)
        acker.init(roots, new_edges(3))
        assert again.settings == acker.settings
        assert again.pending_count() == 3
        again.close()
        for keys in acker.shards.keys:
            acker.shards.transport.run_one(Command(0, ("DEL", *keys.with_streams([1]), keys.spouts, keys.sequences)))


def test_calls_go_on_after_the_server_was_away(namespace: str) -> None:
    server = start_server("redis-7.0", *EVERY_WRITE_TO_DISK)
    try:
        with Acker(server.url, namespace=namespace) as acker:
            roots, edges = acker.allocate("orders", 3), new_edges(3)
            acker.init(roots, edges)
            server.restart()
            assert wait_until(lambda: acker.pending_count()) == 3
            assert acker.ack(roots, edges).completed == 3
    finally:
        server.stop()
