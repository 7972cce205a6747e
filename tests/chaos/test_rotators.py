"""Any number of rotators, stopped at any point: every expired root reaches the failure stream once."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

from redis_acker import Acker, Rotator, new_edges
from redis_acker.store.rotator import DRAIN_COST
from tests.backends import Keeper, Servers
from tests.chaos.workers import Process, barrier, drain_slowly, drain_until_empty, rotate_until_empty
from tests.clock import Clock
from tests.servers import start_server
from tests.store.connect.ledger import SPOUT, TICK_MS, TIMEOUT_MS, failed, start_roots
from tests.waiting import wait_until


@pytest.fixture(params=["redis-7.0", "valkey-9.1", "redis-6.2", "cluster"])
def url(request: pytest.FixtureRequest, servers: Servers) -> str:
    return servers.get(request.param).url


@pytest.mark.full
def test_rotators_and_drains_in_four_processes_expire_every_root_once(url: str, namespace: str, keeper: Keeper) -> None:
    clock = Clock()
    with Acker(url, namespace=namespace, shards=4, block_size=1, timeout_ms=TIMEOUT_MS, clock=clock) as acker:
        roots, _ = start_roots(acker, 8000)
        # Some wait in each bucket, and all are overdue when the rotators come.
        for _ in range(2):
            clock.advance(TICK_MS)
            Rotator(acker).once()
            roots = np.concatenate((roots, start_roots(acker, 2000)[0]))
        clock.advance(10 * TIMEOUT_MS)
        start = barrier(4)
        tasks = [rotate_until_empty, rotate_until_empty, drain_until_empty, drain_until_empty]
        processes = [keeper.keep(Process(task, url, namespace, clock(), start)) for task in tasks]
        for process in processes:
            process.join()
        assert failed(acker) == sorted(roots.tolist())
        assert acker.pending_count() == 0


def test_rotators_that_race_turn_each_shard_once_a_tick(url: str, namespace: str, keeper: Keeper) -> None:
    clock = Clock()
    with Acker(url, namespace=namespace, shards=2, timeout_ms=TIMEOUT_MS, clock=clock) as acker:
        roots, edges = start_roots(acker, 1000)
        clock.advance(2 * TICK_MS)
        start = barrier(2)
        old, old_edges = roots[:500], edges[:500]
        processes = [keeper.keep(Process(rotate_once, url, namespace, clock(), start)) for _ in range(2)]
        for process in processes:
            process.join()
        assert [shard.tick for shard in acker.stats().shards] == [2, 2]
        assert acker.ack(old, old_edges).completed == 500
        assert acker.pending_count() == 500


def rotate_once(url: str, namespace: str, now_ms: int, start: object) -> None:
    """All that is due, again and again."""
    with Acker(url, namespace=namespace, create=False, clock=lambda: now_ms) as acker:
        start.wait()  # type: ignore[attr-defined]
        for _ in range(20):
            Rotator(acker).once()


@pytest.mark.full
def test_a_rotator_that_is_killed_in_the_middle_of_a_drain_is_followed_by_another(
    url: str, namespace: str, keeper: Keeper
) -> None:
    count, rng, clock = 3000, random.Random(7), Clock()
    with Acker(url, namespace=namespace, block_size=1, shards=2, timeout_ms=TIMEOUT_MS, clock=clock) as acker:
        roots, _ = start_roots(acker, count)
        clock.advance(10 * TIMEOUT_MS)
        left = count
        for _ in range(4):
            process = keeper.keep(Process(drain_slowly, url, namespace, clock()))
            goal = left - rng.randrange(10, 300)
            wait_until(partial(has_at_most, acker, goal), timeout_s=30, poll_s=0.001)
            process.kill()
            left = acker.pending_count()
            assert left > 0
        Rotator(acker).once()
        assert failed(acker) == roots.tolist()
        assert acker.pending_count() == 0


def has_at_most(acker: Acker, pending: int) -> bool:
    return acker.pending_count() <= pending


@pytest.mark.full
@pytest.mark.parametrize(("kind", "block_size"), [("redis-7.0", 1), ("valkey-9.1", 1000)])
def test_roots_that_expire_all_at_once_are_drained_in_bounded_steps(
    kind: str, block_size: int, namespace: str, keeper: Keeper
) -> None:
    count, clock = 200_000, Clock()
    server = keeper.keep(start_server(kind, "--slowlog-log-slower-than", "1000"))
    with Acker(server.url, namespace=namespace, block_size=block_size, timeout_ms=TIMEOUT_MS, clock=clock) as acker:
        roots = acker.allocate(SPOUT, count)
        acker.init(roots, new_edges(count), message_ids=np.arange(count))
        clock.advance(10 * TIMEOUT_MS)
        assert Rotator(acker).once().expired == count
        found: list[int] = []
        with acker.failures(SPOUT) as reader:
            while outcomes := reader.read():
                # What one call may do is bounded by the roots it moves.
                assert max(map(len, outcomes)) <= DRAIN_COST
                found += [int(root) for outcome in outcomes for root in outcome.roots]
                reader.release(outcomes)
        assert sorted(found) == roots.tolist()
        with server.client() as client:
            slow = sorted((entry["duration"] for entry in client.slowlog_get(128)), reverse=True)
        print(f"{kind}, blocks of {block_size}: {len(slow)} calls over 1 ms, the longest (us): {slow[:5]}")
