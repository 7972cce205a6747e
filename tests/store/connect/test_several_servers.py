"""Shards dealt out over separate servers."""

from itertools import permutations

import pytest

from redis_acker import Acker
from redis_acker.errors import BadInput, ServerUnavailable, SettingsMismatch
from redis_acker.store.ids import blocks_of, shards_of
from tests.backends import Keeper
from tests.clock import Clock
from tests.servers import Server, start_server
from tests.store.connect.ledger import completed, run_every_operation, start_roots


@pytest.fixture
def fleet(keeper: Keeper) -> list[Server]:
    return [keeper.keep(start_server(kind)) for kind in ("redis-7.0", "valkey-9.1", "redis-6.2")]


@pytest.fixture
def urls(fleet: list[Server]) -> list[str]:
    return [server.url for server in fleet]


def test_every_operation_works_over_several_servers(urls: list[str], namespace: str, clock: Clock) -> None:
    with Acker(urls, namespace=namespace, clock=clock) as acker:
        assert acker.settings.shards == 3
        run_every_operation(acker, clock)


@pytest.mark.parametrize("shards", [3, 7])
def test_a_shard_is_on_the_server_of_its_place_in_the_list(
    shards: int, fleet: list[Server], urls: list[str], namespace: str
) -> None:
    with Acker(urls, namespace=namespace, shards=shards, block_size=10) as acker:
        roots, _ = start_roots(acker, 1000)
        used = set(shards_of(blocks_of(roots), shards).tolist())
    assert used == set(range(shards))
    found: dict[int, int] = {}
    for position, server in enumerate(fleet):
        with server.client() as client:
            for key in client.scan_iter(match=f"*{namespace}*"):
                shard = int(key.decode().partition("}")[0].rpartition(":")[2])
                assert found.setdefault(shard, position) == position
    assert found == {shard: shard % 3 for shard in range(shards)}


def test_each_client_maps_a_root_to_the_same_shard(urls: list[str], namespace: str) -> None:
    with Acker(urls, namespace=namespace) as first, Acker(urls, namespace=namespace) as second:
        roots, edges = start_roots(first, 3000)
        assert second.ack(roots, edges).completed == 3000
        assert completed(first) == roots.tolist()


@pytest.mark.parametrize("order", [order for order in permutations(range(3)) if order != (0, 1, 2)])
def test_the_same_servers_in_another_order_are_refused(order: tuple[int, ...], urls: list[str], namespace: str) -> None:
    Acker(urls, namespace=namespace).close()
    with pytest.raises(SettingsMismatch, match="order in which they were named at first use"):
        Acker([urls[position] for position in order], namespace=namespace)
    Acker(urls, namespace=namespace).close()


@pytest.mark.parametrize("kept", [(0, 1), (0, 2), (1, 2), (0,), (1,), (2,)])
def test_fewer_servers_than_at_first_use_are_refused(kept: tuple[int, ...], urls: list[str], namespace: str) -> None:
    Acker(urls, namespace=namespace, shards=6).close()
    with pytest.raises(SettingsMismatch, match=f"over 3 servers, but this client names {len(kept)}"):
        Acker([urls[position] for position in kept], namespace=namespace)
    Acker(urls, namespace=namespace).close()


def test_more_servers_than_at_first_use_are_refused(urls: list[str], namespace: str) -> None:
    Acker(urls[:2], namespace=namespace, shards=6).close()
    with pytest.raises(SettingsMismatch, match="over 2 servers, but this client names 3"):
        Acker(urls, namespace=namespace)
    Acker(urls[:2], namespace=namespace).close()


def test_fewer_shards_than_servers_are_refused(urls: list[str], namespace: str) -> None:
    with pytest.raises(SettingsMismatch, match=r"shards=2, too few for 3 servers"):
        Acker(urls, namespace=namespace, shards=2)


def test_a_server_cannot_be_named_twice(urls: list[str], namespace: str) -> None:
    with pytest.raises(BadInput, match="named twice"):
        Acker([urls[0], urls[0]], namespace=namespace)


@pytest.mark.parametrize("down", [0, 1, 2])
def test_of_several_servers_the_error_names_the_one_that_is_down(
    down: int, fleet: list[Server], urls: list[str], namespace: str
) -> None:
    with Acker(urls, namespace=namespace, block_size=10, retry_for_s=0.2) as acker:
        roots, edges = start_roots(acker, 3000)
        fleet[down].kill()
        with pytest.raises(ServerUnavailable, match=urls[down]):
            acker.ack(roots, edges)


def test_a_server_that_lost_its_data_gets_the_settings_of_the_others(
    fleet: list[Server], urls: list[str], namespace: str
) -> None:
    Acker(urls, namespace=namespace, timeout_ms=12_345).close()
    for lost in range(3):
        fleet[lost].restart()
        with Acker(urls, namespace=namespace) as acker:
            assert acker.settings.timeout_ms == 12_345
