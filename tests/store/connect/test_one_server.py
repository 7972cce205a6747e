"""A ledger on one server, however it is reached."""

import numpy as np
import pytest
import redis

from redis_acker import Acker
from redis_acker.errors import BadInput, ServerUnavailable
from redis_acker.store.connect import URL_VARIABLE
from tests.backends import Keeper, Servers
from tests.clock import Clock
from tests.servers import start_server, start_tls_server, start_unix_server
from tests.store.connect.ledger import ONE_SERVER_KINDS, completed, run_every_operation, start_roots


@pytest.mark.parametrize("kind", ONE_SERVER_KINDS)
def test_every_operation_works_on_a_server_named_by_its_url(
    kind: str, servers: Servers, namespace: str, clock: Clock
) -> None:
    with Acker(servers.get(kind).url, namespace=namespace, clock=clock) as acker:
        assert acker.settings.shards == 1
        run_every_operation(acker, clock)


def test_several_shards_can_share_one_server(servers: Servers, namespace: str, clock: Clock) -> None:
    with Acker(servers.get("redis-7.0").url, namespace=namespace, shards=5, clock=clock) as acker:
        run_every_operation(acker, clock)


def test_the_database_of_the_url_is_used(keeper: Keeper, namespace: str, clock: Clock) -> None:
    server = keeper.keep(start_server("redis-7.0"))
    with Acker(server.url.replace("/0", "/3"), namespace=namespace, clock=clock) as acker:
        run_every_operation(acker, clock)
    with server.client() as client:
        assert set(client.info("keyspace")) == {"db3"}


def test_every_operation_works_over_tls_with_the_ca_in_the_url(keeper: Keeper, namespace: str, clock: Clock) -> None:
    server = keeper.keep(start_tls_server())
    assert server.url.startswith("rediss://")
    with Acker(server.url, namespace=namespace, clock=clock) as acker:
        run_every_operation(acker, clock)


def test_a_server_with_a_certificate_of_another_ca_is_not_trusted(keeper: Keeper, namespace: str) -> None:
    server = keeper.keep(start_tls_server())
    stranger = keeper.keep(start_tls_server())
    url = server.url.replace(str(server.directory), str(stranger.directory))
    with pytest.raises(ServerUnavailable, match="certificate verify failed"):
        Acker(url, namespace=namespace, retry_for_s=0.1)


def test_every_operation_works_over_a_unix_socket(keeper: Keeper, namespace: str, clock: Clock) -> None:
    server = keeper.keep(start_unix_server())
    with Acker(server.url, namespace=namespace, clock=clock) as acker:
        run_every_operation(acker, clock)


def test_the_url_is_taken_from_the_environment_if_none_is_passed(
    servers: Servers, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = servers.get("redis-7.0").url
    monkeypatch.setenv(URL_VARIABLE, f"  {url}\n")
    with Acker(namespace=namespace) as acker:
        assert acker.urls == [url]
        roots, edges = start_roots(acker, 10)
        assert acker.ack(roots, edges).completed == 10


@pytest.mark.parametrize("between", [",", " ", ", ", "\n"])
def test_several_urls_in_the_environment_are_separated_by_commas_or_spaces(
    between: str, servers: Servers, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [servers.get(kind).url for kind in ("redis-7.0", "valkey-9.1")]
    monkeypatch.setenv(URL_VARIABLE, between.join(urls))
    with Acker(namespace=namespace) as acker:
        assert acker.urls == urls
        roots, edges = start_roots(acker, 1000)
        assert acker.ack(roots, edges).completed == 1000


def test_without_a_url_anywhere_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with pytest.raises(BadInput, match=URL_VARIABLE):
        Acker()


def test_an_embedded_server_lives_as_long_as_its_acker(clock: Clock) -> None:
    with Acker("embedded", clock=clock) as acker:
        run_every_operation(acker, clock)
        url = acker.urls[0]
        with redis.Redis.from_url(url) as client:
            assert client.ping()
    with redis.Redis.from_url(url, retry=None) as client, pytest.raises(redis.ConnectionError):
        client.ping()


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_client_object_can_be_passed_in_and_stays_open(
    protocol: int, servers: Servers, namespace: str, clock: Clock
) -> None:
    url = servers.get("redis-7.0").url
    with redis.Redis.from_url(url, protocol=protocol) as client:
        with Acker(client, namespace=namespace, clock=clock) as acker:
            run_every_operation(acker, clock)
        assert client.ping()


def test_a_second_client_sees_what_the_first_did(servers: Servers, namespace: str) -> None:
    url = servers.get("redis-7.0").url
    with Acker(url, namespace=namespace) as first, Acker(url, namespace=namespace) as second:
        roots, edges = start_roots(first, 500)
        assert np.array_equal(second.allocate("orders", 1) > roots.max(), [True])
        assert second.ack(roots, edges).completed == 500
        assert completed(first) == roots.tolist()


def test_namespaces_on_one_server_know_nothing_of_each_other(servers: Servers, namespace: str) -> None:
    url = servers.get("redis-7.0").url
    with Acker(url, namespace=namespace) as first, Acker(url, namespace=f"{namespace}-2") as second:
        roots, edges = start_roots(first, 10)
        assert second.ack(roots, edges).completed == 0
        assert first.pending_count() == 10
