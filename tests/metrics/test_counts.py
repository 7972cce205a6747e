"""Metrics against a count that was kept beside the store, and what a scrape costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from redis_acker import Acker, new_edges
from redis_acker.metrics.exporter import StoreCollector
from redis_acker.metrics.families import MOST_NAMES, OTHER, FirstNames
from redis_acker.store.lease import Lease
from redis_acker.store.message_ids import id_to_text
from redis_acker.store.spout_states import SpoutStates
from redis_acker.store.tracked_streams import TrackedStreamRecord, TrackedStreams
from tests.backends import Backend, Servers
from tests.driver.conftest import NewWorld, new_world
from tests.driver.world import SPOUT
from tests.metrics.scraping import Scrape
from tests.servers import Server, start_server

__all__ = ["new_world"]

PLANS = {"complete": 40, "fail once": 7, "fail": 3, "fatal": 2, "lose once": 5}
"""What is to become of messages: see tests.driver.world."""


def test_metrics_agree_with_a_count_of_what_happened(new_world: NewWorld) -> None:
    plans = [plan for plan, count in PLANS.items() for _ in range(count)]
    world = new_world(dict(enumerate(plans)), shards=3)
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    driver.close()
    found = Scrape.direct(world.acker)

    attempts = Counter(one.attempt for one in world.deliveries)
    tries = world.policy.max_attempts
    assert found.total("initialised_total", spout=SPOUT) == len(world.deliveries)
    assert found.total("replayed_total") == len(world.deliveries) - attempts[1]
    assert found.total("completed_total") == len(world.completed) == 40 + 7 + 5
    assert found.total("failed_total", reason="failed") == 7 + 3 * tries + 2
    assert found.total("failed_total", reason="timeout") == 5
    assert found.total("component_failed_total", component="task") == 7 + 3 * tries + 2
    assert found.total("buried_total") == found.total("dead_letters") == len(world.dead_letters()) == 5
    assert found.total("acked_total") == len(world.completed)
    assert found.total("completion_seconds_count") == len(world.completed)
    assert found.total("completion_seconds_bucket", le="+Inf") == len(world.completed)
    assert found.total("pending") == found.total("shard_pending") == 0
    assert found.total("retries") == 0
    assert (found.total("unread", stream="completions"), found.total("unread", stream="failures")) == (0, 0)
    assert found.total("up") == 1


def test_a_driver_that_buries_again_after_a_lost_reply_is_counted_once(new_world: NewWorld) -> None:
    world = new_world({1: "fatal"})
    driver = world.new_driver()
    driver.open()
    world.live(driver)
    driver.close()
    [letter] = world.dead_letters().values()
    world.acker.shards.bury(world.acker.spout_number(SPOUT), [[(id_to_text(1), letter.to_json())]])
    assert Scrape.direct(world.acker).total("buried_total") == 1


def test_every_backend_has_every_metric(backend: Backend, namespace: str) -> None:
    with Acker(backend.target, namespace=namespace, shards=2) as acker:
        roots, edges = acker.allocate("orders", 50), new_edges(50)
        acker.init(roots, edges)
        acker.ack(roots[:20], edges[:20])
        acker.ack(roots[:20], edges[:20])
        acker.fail(roots[20], component="parse")
        Lease(acker, "orders").renew()
        states, number = SpoutStates(acker.shards), acker.spout_number("orders")
        assert Scrape.direct(acker).total("paused") == 0
        assert not {"redis_acker_lag", "redis_acker_micro_batches_total"} & Scrape.direct(acker).names()
        states.pause(number)
        states.note_lag(number, 1_000_000)
        TrackedStreams(acker).put("orders", TrackedStreamRecord("query", "id", 41))
        found = Scrape.direct(acker)

    assert (found.total("paused", spout="orders"), found.total("lag", spout="orders")) == (1, 1_000_000)
    assert found.total("micro_batches_total", spout="orders") == 42
    assert found.total("pending", spout="orders") == 29
    assert (found.total("late_total"), found.total("acked_total")) == (20, 20)
    assert found.total("blocks", bucket="0") == 1
    assert found.total("blocks", bucket="expired") == 0
    assert 0 < found.total("lease_seconds", spout="orders") <= 10
    assert 0 <= found.total("oldest_seconds") < 60
    assert found.total("completion_seconds_bucket", le="3600.0") == 20
    assert found.total("timeout_seconds") == 30
    if backend.kind in ("redis-7.0", "valkey-9.1", "cluster"):
        assert found.total("server_script_seconds_bucket", le="+Inf") >= 4
    if backend.kind != "fake":
        assert found.total("server_memory_bytes") > 100_000


HOSTILE = ['a"b', "line\nbreak", "back\\slash", "\u202eevil", "{x=1} 5"]


def test_hostile_names_are_labels_and_nothing_else(backend: Backend, namespace: str) -> None:
    with Acker(backend.target, namespace=namespace) as acker:
        for name in HOSTILE:
            roots = acker.allocate(name, 2)
            acker.init(roots, new_edges(2), message_ids=["secret-id", "other-id"])
            acker.fail(roots[0], component=name, error="secret error")
        found = Scrape.direct(acker)

    for name in HOSTILE:
        assert found.total("initialised_total", spout=name) == 2
        assert found.total("component_failed_total", component=name) == 1
    assert "secret" not in repr(found.samples)


def test_names_beyond_the_first_hundred_share_a_label(servers: Servers, namespace: str) -> None:
    backend_client = servers.client("redis-7.0")
    with Acker(servers.get("redis-7.0").url, namespace=namespace, shards=2) as acker:
        for i in range(130):
            roots = acker.allocate(f"s{i}")
            acker.init(roots, new_edges(1))
            acker.fail(roots, component=f"c{i}")
        collector = StoreCollector(acker, fresh_for_s=0)
        found = [Scrape(collector.collect()) for _ in range(2)]
    for key in backend_client.scan_iter(match=f"*{namespace}*"):
        backend_client.delete(key)

    for one in found:
        assert one.total("initialised_total") == 130
        assert one.total("initialised_total", spout=OTHER) == 30
        assert len({sample.labels["spout"] for sample in one.samples if "spout" in sample.labels}) == MOST_NAMES + 1
        assert one.total("component_failed_total") == 130
    assert found[0].names() == found[1].names()


def test_a_name_keeps_its_label() -> None:
    names = FirstNames(most=2)
    assert [names.label(one) for one in ("a", "b", "c", "a", "b", "c")] == ["a", "b", OTHER, "a", "b", OTHER]


# -- cost ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    """A server whose commands nobody else sends."""
    found = start_server("redis-7.0")
    yield found
    found.stop()


def calls(client: Any) -> Counter[str]:
    """How often each command was called, and how many bytes the server sent."""
    return Counter({name: stats["calls"] for name, stats in client.info("commandstats").items()})


def test_a_scrape_sends_the_same_commands_whatever_is_pending(server: Server) -> None:
    with server.client() as client, Acker(server.url, block_size=1, timeout_ms=600_000) as acker:
        costs, pending = [], []
        for more in (10, 20_000):
            acker.init(acker.allocate("orders", more), new_edges(more))
            Scrape.direct(acker)
            before = calls(client)
            pending.append(Scrape.direct(acker).total("pending"))
            after = calls(client)
            costs.append({name: after[name] - before[name] for name in after if "info" not in name})
    assert pending == [10, 20_010]
    assert costs[0] == costs[1]
    assert not [name for name, count in costs[1].items() if count and "scan" in name]
