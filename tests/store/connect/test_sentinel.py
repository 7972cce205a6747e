"""A ledger on a master that Sentinel watches."""

import pytest

from redis_acker import Acker, new_edges
from redis_acker.errors import BadInput, ServerUnavailable
from tests.backends import Keeper
from tests.clock import Clock
from tests.sentinels import SentinelSet, start_sentinel
from tests.store.connect.ledger import completed, failed, run_every_operation, start_roots

pytestmark = pytest.mark.slow


def url_of(group: SentinelSet) -> str:
    addresses = ",".join(f"{host}:{port}" for host, port in group.addresses)
    return f"redis+sentinel://{addresses}/{group.service}"


def test_a_client_goes_on_with_the_new_master_after_a_failover(keeper: Keeper, namespace: str, clock: Clock) -> None:
    group = keeper.keep(start_sentinel())
    with Acker(url_of(group), namespace=namespace, timeout_ms=120_000, retry_for_s=60) as acker:
        roots, edges = start_roots(acker, 1000)
        children = new_edges(1000)
        acker.ack(roots, edges ^ children)
        completions = acker.completions("orders")
        assert completions.read() == []
        with group.master.client() as master:
            assert master.wait(1, 10_000) == 1
        group.kill_master()
        # Nobody waits for the failover but this call.
        assert acker.ack(roots[:500], children[:500]).completed == 500
        assert group.master_port() == group.replica.port
        assert acker.fail(roots[500:600]).failed == 100
        more, more_edges = start_roots(acker, 300)
        assert acker.ack(more, more_edges).completed == 300
        read = [int(root) for outcome in completions.consume() for root in outcome.roots]
        assert sorted(read) == [*roots[:500].tolist(), *more.tolist()]
        assert failed(acker) == roots[500:600].tolist()
        assert acker.pending_count() == 400
    with Acker(url_of(group), namespace=f"{namespace}-2", clock=clock) as acker:
        run_every_operation(acker, clock)


def test_a_master_that_becomes_a_replica_is_left_at_once(keeper: Keeper, namespace: str) -> None:
    group = keeper.keep(start_sentinel())
    with Acker(url_of(group), namespace=namespace, timeout_ms=120_000, retry_for_s=60) as acker:
        roots, edges = start_roots(acker, 500)
        with group.sentinels[0].client() as sentinel:
            sentinel.execute_command("SENTINEL FAILOVER", group.service)
        for root, edge in zip(roots, edges, strict=True):
            acker.ack(int(root), int(edge))
        group.wait_for_failover()
        with group.replica.client() as new_master:
            assert new_master.info("replication")["role"] == "master"
        assert acker.ack(roots, edges).completed == 0
        # Replication is asynchronous, so a failover may lose the last acks; it never makes two of one.
        found = completed(acker)
        assert len(found) == len(set(found))
        assert acker.pending_count() == 500 - len(found)


def test_an_unknown_service_is_named(keeper: Keeper, namespace: str) -> None:
    group = keeper.keep(start_sentinel(sentinels=1))
    url = url_of(group).replace(group.service, "nowhere")
    with pytest.raises(ServerUnavailable, match="No master found for 'nowhere'") as caught:
        Acker(url, namespace=namespace, retry_for_s=0.1)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("url", ["redis+sentinel://host/service", "redis+sentinel://host:1", "redis+sentinel://:/x"])
def test_a_bad_sentinel_url_is_refused_with_the_form_it_should_have(url: str) -> None:
    with pytest.raises(BadInput, match=r"redis\+sentinel://host:port,host:port/service"):
        Acker(url)
