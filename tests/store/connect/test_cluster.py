"""A ledger on a Redis Cluster."""

import threading
from collections.abc import Iterator

import pytest
import redis
from redis.cluster import RedisCluster
from redis.crc import key_slot

from redis_acker import Acker, new_edges
from redis_acker.errors import AccessDenied, BadInput, ServerUnavailable
from tests.backends import Keeper, Servers
from tests.clock import Clock
from tests.servers import Cluster, Server, start_cluster, start_server
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


class Mover:
    """Moves the slot of a shard between two nodes, step by step."""

    def __init__(self, cluster: Cluster, tag: str) -> None:
        self.slot = key_slot(tag.encode())
        self._cluster = cluster
        clients = [node.client() for node in cluster.nodes]
        owner = next(i for i, client in enumerate(clients) if self._owns(client))
        self.source, self.target = clients[owner], clients[(owner + 1) % len(clients)]
        self._target_port = cluster.nodes[(owner + 1) % len(clients)].port
        self._clients = clients

    def _owns(self, client: redis.Redis) -> bool:
        me = client.execute_command("CLUSTER MYID").decode()
        nodes = client.execute_command("CLUSTER SLOTS")
        return any(first <= self.slot <= last and owner[2].decode() == me for first, last, owner, *_ in nodes)

    def begin(self) -> None:
        source_id, target_id = (client.execute_command("CLUSTER MYID") for client in (self.source, self.target))
        self.target.execute_command("CLUSTER SETSLOT", self.slot, "IMPORTING", source_id)
        self.source.execute_command("CLUSTER SETSLOT", self.slot, "MIGRATING", target_id)

    def move_keys(self) -> Iterator[bytes]:
        """Moves key by key, so that the slot is on both nodes in between."""
        while keys := self.source.execute_command("CLUSTER GETKEYSINSLOT", self.slot, 1):
            self.source.execute_command("MIGRATE", "127.0.0.1", self._target_port, keys[0], 0, 5000)
            yield keys[0]

    def end(self) -> None:
        target_id = self.target.execute_command("CLUSTER MYID")
        for client in (self.target, self.source, *self._clients):
            client.execute_command("CLUSTER SETSLOT", self.slot, "NODE", target_id)

    def close(self) -> None:
        for client in self._clients:
            client.close()


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
