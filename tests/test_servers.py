"""The servers that other tests rely on."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from tests import binaries
from tests.backends import Backend
from tests.proxy import CuttingProxy
from tests.sentinels import start_sentinel
from tests.servers import EVERY_WRITE_TO_DISK, start_cluster, start_server, start_tls_server, start_unix_server
from tests.waiting import wait_until


@contextmanager
def stopping(server: Any) -> Iterator[Any]:
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize(("kind", "field", "version"), [
    ("redis-7.0", "redis_version", (7, 0)),
    ("valkey-9.1", "valkey_version", (9, 1)),
    ("redis-6.2", "redis_version", (6, 2)),
])  # fmt: skip
def test_each_kind_of_server_answers_with_its_version(kind: str, field: str, version: tuple[int, int]) -> None:
    with stopping(start_server(kind)) as server, server.client() as client:
        assert client.ping()
        found = tuple(map(int, client.info("server")[field].split(".")[:2]))
        assert found >= version if kind == "redis-7.0" else found == version


def test_a_killed_server_keeps_its_port_and_what_it_has_written(tmp_path: Path) -> None:
    with (
        stopping(start_server("redis-7.0", *EVERY_WRITE_TO_DISK, directory=tmp_path)) as server,
        server.client() as client,
    ):
        client.set("k", "v")
        port, pid = server.port, server.pid
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.restart()
        assert client.get("k") == b"v"
        assert (server.port, server.pid) != (port, pid)
        assert server.port == port
    assert (tmp_path / "server.log").exists()


def test_a_paused_server_answers_once_it_is_resumed() -> None:
    with stopping(start_server("redis-7.0")) as server, server.client(socket_timeout=0.2) as client:
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        assert client.ping()


def test_stop_ends_the_process_and_removes_the_directory() -> None:
    server = start_server("redis-7.0")
    server.stop()
    server.stop()
    assert not server.directory.exists()


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="no-such-option"):
        start_server("redis-7.0", "--no-such-option", "1")


def test_a_tls_server_answers_to_its_ca_alone() -> None:
    with stopping(start_tls_server()) as server:
        with server.client() as client:
            assert client.ping()
        stranger = redis.Redis(port=server.port, ssl=True, retry=Retry(NoBackoff(), 0))
        with stranger, pytest.raises(redis.ConnectionError):
            stranger.ping()


def test_a_unix_socket_server_answers() -> None:
    with stopping(start_unix_server()) as server, server.client() as client:
        assert client.ping()


@pytest.mark.parametrize("kind", ["redis-7.0", "valkey-9.1"])
def test_a_cluster_serves_every_slot(kind: str) -> None:
    with stopping(start_cluster(kind)) as cluster, closing(cluster.client()) as client:
        for i in range(100):
            client.set(f"key{i}", i)
        sizes = [node.client().dbsize() for node in cluster.nodes]
        assert sum(sizes) == 100
        assert all(sizes)


@pytest.mark.slow
def test_sentinels_promote_the_replica_of_a_killed_master() -> None:
    with stopping(start_sentinel()) as group:
        sentinel = Sentinel(group.addresses)
        sentinel.master_for(group.service).set("k", "v")
        with group.replica.client() as replica:
            wait_until(lambda: replica.get("k") == b"v")
        group.kill_master()
        group.wait_for_failover()
        assert group.master_port() == group.replica.port
        assert sentinel.master_for(group.service).get("k") == b"v"


def test_a_missing_server_skips_the_test_with_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(binaries.CI_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install redis-server"):
        binaries.missing("redis-7.0")


def test_a_missing_server_fails_the_test_where_nothing_may_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(binaries.CI_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install redis-server"):
        binaries.missing("redis-7.0")


def test_every_backend_stores_and_finds_the_keys_of_a_namespace(backend: Backend, namespace: str) -> None:
    client = backend.client()
    keys = [f"acker:{{{namespace}:{shard}}}:meta" for shard in range(5)]
    for key in keys:
        client.hset(key, "a", "1")
    assert backend.keys(namespace) == [key.encode() for key in keys]
    assert backend.keys(namespace + "x") == []


@pytest.fixture
def proxied() -> Iterator[tuple[CuttingProxy, redis.Redis, redis.Redis]]:
    """A proxy, a client that goes through it and never retries, and one that goes past it."""
    with stopping(start_server("redis-7.0")) as server, CuttingProxy("127.0.0.1", server.port) as proxy:
        through = redis.Redis.from_url(proxy.url, retry=None)
        with through, server.client() as past:
            yield proxy, through, past


def test_a_cut_reply_is_lost_after_the_command_was_executed(
    proxied: tuple[CuttingProxy, redis.Redis, redis.Redis],
) -> None:
    proxy, through, past = proxied
    assert through.incr("n") == 1
    proxy.cut_replies(command=b"INCR")
    with pytest.raises(redis.ConnectionError):
        through.incr("n")
    assert past.get("n") == b"2"
    assert through.incr("n") == 3
    assert proxy.cuts == 1


def test_replies_are_cut_only_after_the_number_that_may_pass(
    proxied: tuple[CuttingProxy, redis.Redis, redis.Redis],
) -> None:
    proxy, through, past = proxied
    proxy.cut_replies(2, after=3, command=b"INCR")
    outcomes: list[int | None] = []
    for _ in range(7):
        try:
            outcomes.append(through.incr("n"))
        except redis.ConnectionError:
            outcomes.append(None)
    assert outcomes == [1, 2, 3, None, None, 6, 7]
    assert past.get("n") == b"7"


def test_random_cuts_follow_their_seed(proxied: tuple[CuttingProxy, redis.Redis, redis.Redis]) -> None:
    proxy, through, _ = proxied

    def outcomes() -> list[bool]:
        proxy.cut_randomly(0.5, seed=7, command=b"INCR")
        found = []
        for _ in range(20):
            try:
                through.incr("n")
                found.append(True)
            except redis.ConnectionError:
                found.append(False)
        return found

    first = outcomes()
    assert first == outcomes()
    assert set(first) == {True, False}


def test_a_large_request_and_reply_pass_the_proxy_unchanged(
    proxied: tuple[CuttingProxy, redis.Redis, redis.Redis],
) -> None:
    _, through, _ = proxied
    value = bytes(range(256)) * 10_000
    through.set("k", value)
    assert through.get("k") == value
