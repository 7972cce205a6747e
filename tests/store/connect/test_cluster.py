"""A ledger on a Redis Cluster."""

import threading

import pytest
from redis.cluster import RedisCluster

from redis_acker import Acker, new_edges
from redis_acker.errors import AccessDenied, BadInput, ServerUnavailable
from tests.backends import Keeper, Servers
from tests.clock import Clock
from tests.servers import Cluster, Server, start_cluster, start_server
from tests.slots import Mover
from tests.store.connect.ledger import completed, run_every_operation, start_roots
from tests.waiting import wait_until


@pytest.fixture
def cluster(servers: Servers) -> Cluster:
    found = servers.get("cluster")
    assert isinstance(found, Cluster)
    return found


def keys_by_node(cluster: Cluster, namespace: str) -> list[set[str]]:
    found = []
    for node in cluster.nodes:
        with node.client() as client:
            found.append({key.decode() for key in client.scan_iter(match=f"*{namespace}*", count=1000)})
    return found


def test_every_operation_works_on_a_cluster(cluster: Cluster, namespace: str, clock: Clock) -> None:
    with Acker(cluster.url, namespace=namespace, clock=clock) as acker:
        assert acker.settings.shards == 16
        run_every_operation(acker, clock)


def test_every_operation_works_on_a_valkey_cluster(keeper: Keeper, namespace: str, clock: Clock) -> None:
    cluster = keeper.keep(start_cluster("valkey-9.1"))
    with Acker(cluster.url, namespace=namespace, clock=clock) as acker:
        run_every_operation(acker, clock)


def test_the_keys_of_a_shard_are_on_one_node_and_the_shards_on_all_nodes(cluster: Cluster, namespace: str) -> None:
    with Acker(cluster.url, namespace=namespace, block_size=10) as acker:
        roots, edges = start_roots(acker, 5000)
        acker.ack(roots[:2500], edges[:2500])
        acker.fail(roots[2500:2600])
    nodes_of_shard: dict[str, set[int]] = {}
    for node, keys in enumerate(keys_by_node(cluster, namespace)):
        for key in keys:
            nodes_of_shard.setdefault(key.partition("}")[0], set()).add(node)
    assert len(nodes_of_shard) == 16
    assert all(len(nodes) == 1 for nodes in nodes_of_shard.values())
    assert set.union(*nodes_of_shard.values()) == {0, 1, 2}


def test_any_node_can_be_named_in_the_url(cluster: Cluster, namespace: str) -> None:
    with Acker(cluster.url, namespace=namespace) as first:
        roots, edges = start_roots(first, 100)
        for node in cluster.nodes:
            with Acker(f"redis+cluster://127.0.0.1:{node.port}", namespace=namespace) as other:
                assert other.pending_count() == 100
        assert other.ack(roots, edges).completed == 100
        assert completed(first) == roots.tolist()


@pytest.fixture
def moving(keeper: Keeper) -> Cluster:
    """A cluster of the test's own, because its slots are moved."""
    return keeper.keep(start_cluster())


def test_a_live_client_follows_a_shard_that_has_moved_to_another_node(moving: Cluster, namespace: str) -> None:
    with Acker(moving.url, namespace=namespace, shards=4, block_size=10) as acker:
        roots, edges = start_roots(acker, 2000)
        children = new_edges(2000)
        acker.ack(roots, edges ^ children)
        for keys in acker.shards.keys[:2]:
            mover = Mover(moving, keys.meta)
            mover.begin()
            assert list(mover.move_keys())
            mover.end()
            mover.close()
        assert acker.ack(roots, children).completed == 2000
        assert completed(acker) == roots.tolist()
        assert acker.pending_count() == 0


def test_calls_wait_while_a_shard_is_on_two_nodes(moving: Cluster, namespace: str) -> None:
    with Acker(moving.url, namespace=namespace, shards=1, block_size=10) as acker:
        roots, edges = start_roots(acker, 100)
        mover = Mover(moving, acker.shards.keys[0].meta)
        mover.begin()
        moves = mover.move_keys()
        next(moves)
        results: list[int] = []
        acking = threading.Thread(target=lambda: results.append(acker.ack(roots, edges).completed))
        acking.start()
        # The ack has been refused at least once before the rest is moved.
        wait_until(lambda: acker.shards.transport.troubles > 0)
        assert list(moves)
        mover.end()
        acking.join()
        mover.close()
        assert results == [100]
        assert completed(acker) == roots.tolist()


@pytest.mark.slow
def test_a_cluster_that_comes_up_later_is_waited_for(keeper: Keeper, namespace: str) -> None:
    cluster = keeper.keep(start_cluster())
    for node in cluster.nodes:
        node.kill()
    opened: list[Acker] = []
    opening = threading.Thread(target=lambda: opened.append(Acker(cluster.url, namespace=namespace, retry_for_s=60)))
    opening.start()
    for node in cluster.nodes:
        node.restart()
    opening.join()
    with opened[0] as acker:
        start_roots(acker, 10)


def test_a_cluster_that_is_down_is_named_without_its_password(namespace: str, keeper: Keeper) -> None:
    server = start_server("redis-7.0")
    server.stop()
    url = f"redis+cluster://me:geheim@127.0.0.1:{server.port}"
    with pytest.raises(ServerUnavailable, match=str(server.port)) as caught:
        Acker(url, namespace=namespace, retry_for_s=0.1)
    assert "geheim" not in str(caught.value)


def test_a_server_that_is_no_cluster_is_refused_at_once(servers: Servers, namespace: str) -> None:
    server = servers.get("redis-7.0")
    assert isinstance(server, Server)
    with pytest.raises(BadInput, match="Cluster mode is not enabled"):
        Acker(f"redis+cluster://127.0.0.1:{server.port}", namespace=namespace)


def test_a_wrong_password_for_a_cluster_is_refused_and_not_shown(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(AccessDenied) as caught:
        Acker(cluster.url.replace("://", "://nobody:geheim@"), namespace=namespace)
    assert "geheim" not in str(caught.value)


def test_two_urls_of_one_cluster_are_refused(cluster: Cluster) -> None:
    with pytest.raises(BadInput, match="one URL for a cluster"):
        Acker([cluster.url, f"redis+cluster://127.0.0.1:{cluster.nodes[1].port}"])


def test_a_cluster_client_object_is_refused_with_what_to_pass_instead(cluster: Cluster) -> None:
    client = RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port)
    try:
        with pytest.raises(BadInput, match=r"redis\+cluster://"):
            Acker(client)  # type: ignore[arg-type]
    finally:
        client.close()
