"""The clock of a server is simulated by the text of the scripts that a test sends, and by nothing in production."""

from __future__ import annotations

import re

import pytest

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import BadInput
from redis_acker.store.lease import Lease
from redis_acker.store.scripts import script
from redis_acker.testing import SimulatedAcker, SimulatedTime, fake_redis, simulated_acker
from redis_acker.testing.acker import simulated_script
from redis_acker.testing.time import START_MS
from redis_acker.views.overview import read_overview
from tests.backends import Servers, make_backend
from tests.lua.headers import scripts
from tests.testing.conftest import Simulate


def test_time_passes_on_every_kind_of_store(simulate_everywhere: Simulate) -> None:
    acker, time = simulate_everywhere(timeout_ms=30_000, shards=3)
    rotator = Rotator(acker)
    roots, edges = acker.allocate("orders", 6), new_edges(6)
    acker.init(roots, edges)
    time.advance(29)
    rotator.once()
    assert acker.inspect(int(roots[0])).age_ms == 29_000
    assert acker.ack(roots[:2], edges[:2]).completed == 2
    time.advance(17)
    assert rotator.once().expired == 4
    with acker.failures("orders") as failures:
        assert [one.at_ms for one in failures.consume()] == [START_MS + 46_000]
    assert [acker.shards.time_ms(shard) for shard in range(3)] == [START_MS + 46_000] * 3


def test_a_lease_that_is_looked_at_has_simulated_time_left(simulate_everywhere: Simulate) -> None:
    acker, time = simulate_everywhere()
    lease = Lease(acker, "orders", for_ms=10_000)
    lease.renew()
    time.advance(2.5)
    [spout] = read_overview(acker).spouts
    assert spout.driver
    assert spout.lease_ms == 7_500
    lease.give_up()


EXPIRY = re.compile(r"'(P?EXPIRE\w*|P?TTL|P?X|P?XAT|EX|EXAT|PERSIST|P?SETEX|GETEX)'")
"""The commands and options by which keys expire."""


@pytest.mark.parametrize("name", scripts())
def test_a_script_uses_nothing_of_the_server_s_time_that_is_not_simulated(name: str) -> None:
    sent = script(name).source
    assert set(EXPIRY.findall(sent)) <= {"PTTL", "PX"}
    assert simulated_script(script(name)).source.endswith(sent)


def test_the_same_store_in_real_time_goes_by_the_clock_of_the_server() -> None:
    client = fake_redis()
    with simulated_acker(client) as (simulated, _):
        simulated.init(simulated.allocate("orders", 1), new_edges(1))
        with Acker(client, namespace=simulated.namespace) as real:
            assert abs(real.shards.time_ms(0) - simulated.shards.time_ms(0)) > 1_000


def test_ackers_may_share_a_namespace_and_its_time() -> None:
    client, time = fake_redis(), SimulatedTime()
    first, second = (SimulatedAcker(client, time=time, namespace="shop") for _ in range(2))
    roots = first.allocate("orders", 1)
    first.init(roots, new_edges(1))
    time.advance(12)
    assert second.inspect(int(roots[0])).age_ms == 12_000
    first.close()
    time.advance(1)
    assert second.inspect(int(roots[0])).age_ms == 13_000


@pytest.mark.parametrize("kind", ["redis-7.0", "cluster"])
def test_the_namespace_is_gone_afterwards_and_others_are_not(servers: Servers, kind: str, namespace: str) -> None:
    backend = make_backend(kind, servers)
    with Acker(backend.target, namespace=f"{namespace}-2") as other:
        other.init(other.allocate("orders", 1), new_edges(1))
        with simulated_acker(backend.target, namespace=namespace) as (acker, _):
            acker.init(acker.allocate("orders", 100), new_edges(100))
            assert len(backend.keys(f"{{{namespace}:")) > 3
        assert backend.keys(f"{{{namespace}:") == []
        assert other.pending_count() == 1
    backend.delete_keys(namespace)


def test_a_namespace_that_exists_is_refused_and_left_alone(servers: Servers, namespace: str) -> None:
    backend = make_backend("redis-7.0", servers)
    with Acker(backend.target, namespace=namespace) as acker:
        acker.init(acker.allocate("orders", 1), new_edges(1))
        with (
            pytest.raises(BadInput, match=rf"^Namespace '{namespace}' exists, and those who use it go by another time"),
            simulated_acker(backend.target, namespace=namespace),
        ):
            pass
        assert acker.pending_count() == 1
    backend.delete_keys(namespace)


def test_the_embedded_server_will_do_too() -> None:
    with simulated_acker("embedded", timeout_ms=1_000) as (acker, time), Rotator(acker).start():
        acker.init(acker.allocate("orders", 1), new_edges(1))
        time.advance(2)
        assert acker.pending_count() == 0
