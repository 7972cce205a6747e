"""The settings of a namespace: stored at first use, the same for every client."""

from typing import Any

import fakeredis
import pytest

from redis_acker import Acker
from redis_acker.errors import BadInput, SettingsMismatch, UnknownNamespace
from redis_acker.store.keys import check_namespace
from redis_acker.store.namespace import Settings, StoredSettings
from redis_acker.testing import fake_redis
from tests.clock import Clock

STORED = StoredSettings(shards=4, buckets=5, timeout_ms=1000, block_size=9, ack_restarts_clock=True)


@pytest.fixture
def server() -> fakeredis.FakeRedis:
    return fake_redis()


def stored_in(server: fakeredis.FakeRedis) -> dict[Any, Any]:
    return {key: server.hgetall(key) for key in server.scan_iter()}


def test_defaults_are_those_of_storm_with_three_buckets() -> None:
    settings = Settings().with_defaults(7)
    assert settings == StoredSettings(7, 3, 30_000, 500, False)
    assert Settings(shards=2, ack_restarts_clock=True).with_defaults(7).shards == 2


@pytest.mark.parametrize(
    ("timeout_ms", "buckets", "tick_ms"), [(30_000, 3, 15_000), (30_000, 2, 30_000), (100, 4, 34), (1, 64, 1)]
)
def test_the_timeout_is_the_ticks_between_first_and_last_bucket(timeout_ms: int, buckets: int, tick_ms: int) -> None:
    """Rounded up: a root must not expire early."""
    settings = StoredSettings(1, buckets, timeout_ms, 500, False)
    assert settings.tick_ms == tick_ms
    assert settings.tick_ms * (buckets - 1) >= timeout_ms


def test_settings_come_back_from_the_store_as_they_went_in() -> None:
    fields = STORED.to_fields()
    assert [name for name, _ in fields] == StoredSettings.names()
    assert StoredSettings.from_values([str(value).encode() for _, value in fields]) == STORED


@pytest.mark.parametrize(
    ("setting", "asked"),
    [("shards", 3), ("buckets", 4), ("timeout_ms", 999), ("block_size", 10), ("ack_restarts_clock", False)],
)
def test_a_client_that_disagrees_is_refused_with_both_values(
    server: fakeredis.FakeRedis, namespace: str, setting: str, asked: Any
) -> None:
    stored = dict(STORED.to_fields()) | {"ack_restarts_clock": True}
    with Acker(server, namespace=namespace, **stored) as acker:  # type: ignore[arg-type]
        assert acker.settings == STORED
    before = stored_in(server)
    with pytest.raises(SettingsMismatch) as caught:
        Acker(server, namespace=namespace, **{setting: asked})
    assert f"{setting}={getattr(STORED, setting)}" in str(caught.value)
    assert f"{setting}={asked}" in str(caught.value)
    assert stored_in(server) == before


def test_a_client_without_wishes_takes_what_is_stored(server: fakeredis.FakeRedis, namespace: str) -> None:
    stored = dict(STORED.to_fields()) | {"ack_restarts_clock": True}
    Acker(server, namespace=namespace, **stored)  # type: ignore[arg-type]
    assert Acker(server, namespace=namespace).settings == STORED
    assert Acker(server, namespace=namespace, create=False, buckets=5).settings == STORED


def test_a_namespace_that_must_exist_is_not_made(server: fakeredis.FakeRedis, namespace: str) -> None:
    with pytest.raises(UnknownNamespace, match=namespace):
        Acker(server, namespace=namespace, create=False)
    assert stored_in(server) == {}


def test_settings_are_stored_in_every_shard(server: fakeredis.FakeRedis, namespace: str) -> None:
    """Any of them may be the only one that is left."""
    acker = Acker(server, namespace=namespace, shards=4, buckets=5)
    for keys in acker.shards.keys[:3]:
        server.delete(keys.meta)
    with pytest.raises(SettingsMismatch):
        Acker(server, namespace=namespace, buckets=3)
    assert Acker(server, namespace=namespace).settings.buckets == 5


def test_namespaces_on_one_server_share_nothing(server: fakeredis.FakeRedis, clock: Clock) -> None:
    """One name is the beginning of the other."""
    first, second = (Acker(server, namespace=name, clock=clock) for name in ("orders", "orders2"))
    roots = first.allocate("spout", 3)
    first.init(roots, [1, 2, 3])
    assert second.pending_count() == 0
    assert second.spout_names() == {}
    assert second.ack(roots, [1, 2, 3]).completed == 0
    assert first.pending_count() == 3


@pytest.mark.parametrize("namespace", ["a", "A-b_c.9", "x" * 64])
def test_plain_names_are_namespaces(namespace: str) -> None:
    assert check_namespace(namespace) == namespace


@pytest.mark.parametrize("namespace", ["", "a b", "a{b", "a}b", "a:b", "é", "x" * 65, "a\n", None, 5, b"a"])
def test_other_names_are_refused(namespace: Any) -> None:
    with pytest.raises(BadInput, match="choose another name"):
        check_namespace(namespace)
