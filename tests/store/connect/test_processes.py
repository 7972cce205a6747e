"""One Acker in several threads and processes."""

import os
import pickle
import threading
import traceback
from collections.abc import Callable

import numpy as np
import pytest
import redis

from redis_acker import Acker, new_edges
from redis_acker.errors import BadInput, SettingsMismatch, UnknownNamespace
from redis_acker.store.ids import U64Array
from tests.backends import Servers
from tests.store.connect.ledger import completed, start_roots
from tests.store.connect.workers import ack_with_pickled, new_process

THREADS = 8


@pytest.fixture(params=["redis-7.0", "cluster"])
def url(request: pytest.FixtureRequest, servers: Servers) -> str:
    return servers.get(request.param).url


def in_threads(task: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            task(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def edges_of_threads(count: int) -> list[U64Array]:
    return [new_edges(count) for _ in range(THREADS)]


def test_threads_share_an_acker(url: str, namespace: str) -> None:
    with Acker(url, namespace=namespace, block_size=100) as acker:
        roots = acker.allocate("orders", 3000)
        edges = edges_of_threads(3000)
        acker.init(roots, np.bitwise_xor.reduce(edges))

        def ack(number: int) -> None:
            order = np.random.default_rng(number).permutation(3000)
            for part in np.array_split(order, 20):
                assert acker.ack(roots[part], edges[number][part]).applied == len(part)

        in_threads(ack)
        assert completed(acker) == roots.tolist()
        assert acker.pending_count() == 0


def test_threads_that_share_an_acker_never_share_roots(url: str, namespace: str) -> None:
    with Acker(url, namespace=namespace, block_size=10) as acker:
        allocated: list[U64Array] = []
        in_threads(lambda _: allocated.extend(acker.allocate("orders", 10) for _ in range(50)))
        roots = np.concatenate(allocated)
        assert len(set(roots.tolist())) == len(roots) == THREADS * 500


def in_forked_child(task: Callable[[], None]) -> int:
    """Starts the task; returns the process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        task()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_and_its_parent_use_the_same_acker(url: str, namespace: str) -> None:
    with Acker(url, namespace=namespace, block_size=100) as acker:
        roots = acker.allocate("orders", 2000)
        first, of_parent, of_child = new_edges(2000), new_edges(2000), new_edges(2000)
        acker.init(roots, first)
        # Parent and child both go on from the session in which this was sent, and touch the same blocks.
        acker.ack(roots, first ^ of_parent ^ of_child)

        def ack_all(edges: U64Array) -> None:
            for part in np.array_split(np.arange(2000), 40):
                assert acker.ack(roots[part], edges[part]).applied == len(part)

        child = in_forked_child(lambda: ack_all(of_child))
        ack_all(of_parent)
        assert os.waitpid(child, 0)[1] == 0
        assert completed(acker) == roots.tolist()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_that_closes_its_acker_leaves_the_parents_open(namespace: str) -> None:
    with Acker("embedded", namespace=namespace) as acker:
        roots, edges = start_roots(acker, 10)
        assert os.waitpid(in_forked_child(acker.close), 0)[1] == 0
        assert acker.ack(roots, edges).completed == 10


def test_a_pickled_acker_works_in_another_process(url: str, namespace: str) -> None:
    with Acker(url, namespace=namespace) as acker, new_process() as process:
        roots, edges = start_roots(acker, 1000)
        children = new_edges(1000)
        acker.ack(roots, edges ^ children)
        acks, text = process.submit(ack_with_pickled, pickle.dumps(acker), roots, children).result()
        assert acks.completed == 1000
        assert text == repr(acker)
        assert completed(acker) == roots.tolist()


def test_a_pickled_acker_of_an_embedded_server_works_in_another_process(namespace: str) -> None:
    with Acker("embedded", namespace=namespace) as acker, new_process() as process:
        roots, edges = start_roots(acker, 10)
        acks, _ = process.submit(ack_with_pickled, pickle.dumps(acker), roots, edges).result()
        assert acks.completed == 10
        assert completed(acker) == roots.tolist()


def test_a_pickled_acker_keeps_its_settings_and_does_not_create_its_namespace_again(
    servers: Servers, namespace: str
) -> None:
    server = servers.get("redis-7.0")
    with Acker(server.url, namespace=namespace, timeout_ms=12_345, retry_for_s=3.0) as acker:
        pickled = pickle.dumps(acker)
        with pickle.loads(pickled) as copy:
            assert copy.settings == acker.settings
        client = server.client()
        client.delete(acker.shards.keys[0].meta)
        with pytest.raises((UnknownNamespace, SettingsMismatch)):
            pickle.loads(pickled)
        client.close()


def test_an_acker_on_a_client_object_cannot_be_pickled_and_says_so(servers: Servers, namespace: str) -> None:
    with redis.Redis.from_url(servers.get("redis-7.0").url) as client:
        acker = Acker(client, namespace=namespace)
        with pytest.raises(BadInput, match="open it with a URL"):
            pickle.dumps(acker)
