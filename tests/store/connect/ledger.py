"""What the tests of connections and of failures do with a ledger, and how they look at it from outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import redis
from redis.cluster import RedisCluster

from redis_acker import Acker, Completion, Failure, Rotator, new_edges
from redis_acker.store.ids import U64Array
from tests.clock import Clock

SPOUT = "orders"
TIMEOUT_MS = 30_000
TICK_MS = 15_000
"""The step of rotation at this timeout and the default number of buckets."""

ONE_SERVER_KINDS = ("redis-7.0", "valkey-9.1", "redis-6.2")


def sorted_roots(outcomes: Iterable[Completion | Failure]) -> list[int]:
    """Every root of some outcomes, as often as it is there."""
    return sorted(int(root) for outcome in outcomes for root in outcome.roots)


def completed(acker: Acker, spout: str = SPOUT) -> list[int]:
    """Takes all completions out of the streams."""
    with acker.completions(spout) as reader:
        return sorted_roots(reader.consume())


def failed(acker: Acker, spout: str = SPOUT) -> list[int]:
    """Takes all failures out of the streams."""
    with acker.failures(spout) as reader:
        return sorted_roots(reader.consume())


def start_roots(acker: Acker, count: int, spout: str = SPOUT) -> tuple[U64Array, U64Array]:
    """Pending roots and the edges that complete them."""
    roots, edges = acker.allocate(spout, count), new_edges(count)
    assert acker.init(roots, edges, message_ids=np.arange(count)).initialised == count
    return roots, edges


def run_every_operation(acker: Acker, clock: Clock) -> None:
    """Allocates, initialises, acks, fails, extends, rotates, drains, reads and looks, and checks each outcome."""
    roots, edges = start_roots(acker, 600)
    children = new_edges(600)
    assert acker.ack(roots, edges ^ children).applied == 600
    assert acker.ack(roots[:300], children[:300]).completed == 300
    assert acker.fail(roots[300:350], component="parse", error="no such field").failed == 50
    assert acker.pending_count(SPOUT) == 250
    assert acker.inspect(int(roots[599])).ack_val == children[599]
    assert sorted(one.root for one in acker.pending()) == roots[350:].tolist()

    rotator = Rotator(acker)
    clock.advance(TICK_MS)
    assert rotator.once().expired == 0
    assert acker.extend(roots[350:400]) == 50
    clock.advance(TICK_MS)
    assert rotator.once().expired == 0
    clock.advance(TICK_MS)
    assert rotator.once().expired == 200
    clock.advance(TICK_MS)
    assert rotator.once().expired == 50

    assert completed(acker) == roots[:300].tolist()
    with acker.failures(SPOUT) as reader:
        failures = list(reader.consume())
    by_reason = {reason: [one for one in failures if one.reason == reason] for reason in ("failed", "timeout")}
    assert sorted_roots(by_reason["failed"]) == roots[300:350].tolist()
    assert sorted_roots(by_reason["timeout"]) == roots[350:].tolist()
    assert sorted(int(one) for failure in failures for one in failure.message_ids if one is not None) == [
        *range(300, 600)
    ]
    assert acker.pending_count() == 0


def keyspace(client: redis.Redis | RedisCluster, namespace: str) -> dict[str, Any]:
    """All that is stored of a namespace, by key."""
    return {key.decode(): _content(client, key) for key in sorted(_scan(client, namespace))}


def _scan(client: Any, namespace: str) -> Iterator[bytes]:
    yield from client.scan_iter(match=f"*{namespace}*", count=1000)


def _content(client: Any, key: bytes) -> Any:
    kind = client.type(key)
    if kind == b"hash":
        return client.hgetall(key)
    if kind == b"stream":
        groups = [
            (group["name"], group["pending"], group["last-delivered-id"], client.xpending(key, group["name"]))
            for group in client.xinfo_groups(key)
        ]
        return client.xrange(key), groups
    return kind, client.dump(key)
