"""A server that forgets its scripts in the middle of the work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from redis_acker import Acker, Rotator, new_edges
from tests.backends import Servers
from tests.clock import Clock
from tests.servers import Cluster, Server
from tests.store.connect.ledger import SPOUT, TIMEOUT_MS, completed, failed, start_roots

EVERY_S = 0.002


@pytest.fixture(params=["redis-7.0", "valkey-9.1", "redis-6.2", "cluster"])
def server(request: pytest.FixtureRequest, servers: Servers) -> Server | Cluster:
    return servers.get(request.param)


@contextmanager
def flushing(server: Server | Cluster) -> Iterator[None]:
    """Makes all nodes forget their scripts, again and again."""
    nodes = server.nodes if isinstance(server, Cluster) else [server]
    clients = [node.client() for node in nodes]
    stop = threading.Event()

    def flush() -> None:
        while not stop.wait(EVERY_S):
            for client in clients:
                client.script_flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for client in clients:
            client.close()


def test_nothing_is_lost_or_done_twice_when_scripts_are_flushed(server: Server | Cluster, namespace: str) -> None:
    clock = Clock()
    with Acker(server.url, namespace=namespace, block_size=20, timeout_ms=TIMEOUT_MS, clock=clock) as acker:
        with flushing(server):
            roots, edges = start_roots(acker, 4000)
            children = new_edges(4000)
            acker.ack(roots, edges ^ children)
            for part in np.array_split(np.arange(3000), 10):
                assert acker.ack(roots[part], children[part]).completed == len(part)
            assert acker.fail(roots[3000:3500]).failed == 500
            clock.advance(10 * TIMEOUT_MS)
            assert Rotator(acker).once().expired == 500
            assert completed(acker) == roots[:3000].tolist()
            assert failed(acker) == roots[3000:].tolist()
        assert acker.pending_count() == 0
        late = acker.stats()
        assert sum(shard.duplicates + shard.late for shard in late.shards) == 0


def test_scripts_that_are_flushed_in_the_middle_of_one_batch_are_loaded_again(
    server: Server | Cluster, namespace: str
) -> None:
    with Acker(server.url, namespace=namespace, block_size=1) as acker:
        roots, edges = acker.allocate(SPOUT, 6000), new_edges(6000)
        with flushing(server):
            # One call of the API, many calls of the script.
            assert acker.init(roots, edges).initialised == 6000
            assert acker.ack(roots, edges).completed == 6000
        assert completed(acker) == roots.tolist()
