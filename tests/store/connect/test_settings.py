"""Settings are stored at first use, and every client agrees with them."""

import threading
from typing import Any

import pytest

from redis_acker import Acker
from redis_acker.errors import AckerError, BadInput, SettingsMismatch, UnknownNamespace
from redis_acker.store.namespace import StoredSettings
from tests.backends import Servers
from tests.store.connect.ledger import keyspace, start_roots

OTHERS: dict[str, Any] = {
    "shards": 3,
    "buckets": 5,
    "timeout_ms": 12_345,
    "block_size": 77,
    "ack_restarts_clock": True,
}


@pytest.fixture(params=["redis-7.0", "cluster"])
def url(request: pytest.FixtureRequest, servers: Servers) -> str:
    return servers.get(request.param).url


def test_defaults_are_stored_at_first_use(servers: Servers, namespace: str) -> None:
    with Acker(servers.get("redis-7.0").url, namespace=namespace) as acker:
        defaults = acker.settings
    assert (defaults.shards, defaults.buckets, defaults.timeout_ms) == (1, 3, 30_000)
    with Acker(servers.get("redis-7.0").url, namespace=namespace, **as_dict(defaults)) as acker:
        assert acker.settings == defaults


def as_dict(settings: StoredSettings) -> dict[str, Any]:
    return dict(settings.to_fields()) | {"ack_restarts_clock": settings.ack_restarts_clock}


def test_a_client_without_wishes_adopts_what_is_stored(url: str, namespace: str) -> None:
    Acker(url, namespace=namespace, **OTHERS).close()
    with Acker(url, namespace=namespace) as acker:
        assert as_dict(acker.settings) == OTHERS


def test_each_shard_holds_the_settings(url: str, namespace: str, servers: Servers) -> None:
    with Acker(url, namespace=namespace, shards=5, timeout_ms=12_345) as acker:
        metas = [keys.meta for keys in acker.shards.keys]
    client = (servers.get("cluster") if "cluster" in url else servers.get("redis-7.0")).client()
    try:
        assert [client.hget(meta, "timeout_ms") for meta in metas] == [b"12345"] * 5
    finally:
        client.close()


@pytest.mark.parametrize("name", list(OTHERS))
def test_a_client_that_disagrees_is_refused_with_both_values(name: str, url: str, namespace: str) -> None:
    with Acker(url, namespace=namespace) as acker:
        stored = as_dict(acker.settings)[name]
    with pytest.raises(SettingsMismatch, match=rf"has {name}={stored}, but this client asks for {name}={OTHERS[name]}"):
        Acker(url, namespace=namespace, **{name: OTHERS[name]})


@pytest.mark.parametrize("name", list(OTHERS))
def test_a_client_that_disagrees_with_what_the_first_client_chose_is_refused(
    name: str, url: str, namespace: str
) -> None:
    Acker(url, namespace=namespace, **OTHERS).close()
    asked: Any = False if name == "ack_restarts_clock" else OTHERS[name] + 1
    with pytest.raises(SettingsMismatch, match=rf"has {name}={OTHERS[name]}, .* asks for {name}={asked}"):
        Acker(url, namespace=namespace, **{name: asked})


def test_a_refused_client_leaves_nothing_behind(servers: Servers, namespace: str) -> None:
    server = servers.get("redis-7.0")
    with server.client() as client:
        Acker(server.url, namespace=namespace, shards=2).close()
        before = keyspace(client, namespace)
        for name, value in OTHERS.items():
            with pytest.raises(SettingsMismatch):
                Acker(server.url, namespace=namespace, **{name: value})
        with pytest.raises(UnknownNamespace, match="does not exist"):
            Acker(server.url, namespace=f"{namespace}-2", create=False)
        assert keyspace(client, namespace) == before


def test_of_clients_that_open_a_namespace_at_once_with_other_settings_one_wins(url: str, namespace: str) -> None:
    opened: list[Acker] = []
    refused: list[AckerError] = []

    def open_one(number: int) -> None:
        try:
            opened.append(Acker(url, namespace=namespace, shards=20, timeout_ms=10_000 + number))
        except AckerError as error:
            refused.append(error)

    threads = [threading.Thread(target=open_one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1
    assert {type(error) for error in refused} == {SettingsMismatch}
    with opened[0] as winner, Acker(url, namespace=namespace) as later:
        assert later.settings == winner.settings
        start_roots(later, 10)


def test_a_namespace_that_must_exist_is_refused_if_it_does_not(url: str, namespace: str) -> None:
    with pytest.raises(UnknownNamespace, match=namespace):
        Acker(url, namespace=namespace, create=False)
    Acker(url, namespace=namespace).close()
    Acker(url, namespace=namespace, create=False).close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shards", 0),
        ("shards", True),
        ("buckets", 1),
        ("buckets", 65),
        ("timeout_ms", 0),
        ("timeout_ms", 1.5),
        ("block_size", 0),
        ("block_size", 1025),
        ("namespace", ""),
        ("namespace", "a b"),
        ("namespace", "a{b}"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_with_its_value(name: str, value: Any, servers: Servers) -> None:
    with pytest.raises(BadInput) as caught:
        Acker(servers.get("redis-7.0").url, **{name: value})
    assert repr(value) in str(caught.value)
