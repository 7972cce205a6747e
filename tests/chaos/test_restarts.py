"""Servers that are killed and come back: with their data, late, or with nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sized
from functools import partial

import numpy as np
import pytest

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import SettingsMismatch
from redis_acker.store.ids import U64Array
from tests.backends import Keeper
from tests.clock import Clock
from tests.servers import EVERY_WRITE_TO_DISK, Server, start_server
from tests.store.connect.ledger import (
    ONE_SERVER_KINDS,
    SPOUT,
    TICK_MS,
    TIMEOUT_MS,
    completed,
    failed,
    keyspace,
    sorted_roots,
    start_roots,
)
from tests.waiting import wait_until


@pytest.fixture(params=ONE_SERVER_KINDS)
def durable(request: pytest.FixtureRequest, keeper: Keeper) -> Server:
    """A server that has written to disk whatever it has answered."""
    return keeper.keep(start_server(request.param, *EVERY_WRITE_TO_DISK))


def while_running(task: Callable[[], None], meanwhile: Callable[[], None]) -> None:
    """Runs the second once, while the first runs in another thread; raises what either raises."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        meanwhile()
    finally:
        thread.join()
    if errors:
        raise errors[0]


def has_at_least(items: Sized, count: int) -> bool:
    return len(items) >= count


def test_nothing_is_lost_when_a_server_is_killed_in_the_middle_of_the_work(durable: Server, namespace: str) -> None:
    rounds: list[U64Array] = []
    stop = threading.Event()
    with Acker(durable.url, namespace=namespace, block_size=20, timeout_ms=600_000, retry_for_s=60) as acker:
        completions, failures = acker.completions(SPOUT), acker.failures(SPOUT)
        found: tuple[list[int], list[int]] = [], []

        def work() -> None:
            while not stop.is_set():
                roots, edges = acker.allocate(SPOUT, 300), new_edges(300)
                children = new_edges(300)
                acker.init(roots, edges, message_ids=np.arange(300))
                acker.ack(roots, edges ^ children)
                acker.ack(roots[:200], children[:200])
                acker.fail(roots[200:])
                rounds.append(roots)
                found[0].extend(sorted_roots(completions.consume()))
                found[1].extend(sorted_roots(failures.consume()))

        def kill_three_times() -> None:
            try:
                for _ in range(3):
                    goal = len(rounds) + 3
                    wait_until(partial(has_at_least, rounds, goal), timeout_s=60)
                    durable.restart()
            finally:
                stop.set()

        while_running(work, kill_three_times)
        assert sorted(found[0]) == sorted(root for roots in rounds for root in roots[:200].tolist())
        assert sorted(found[1]) == sorted(root for roots in rounds for root in roots[200:].tolist())
        assert acker.pending_count() == 0
        assert (completed(acker), failed(acker)) == ([], [])


def test_a_killed_server_comes_back_with_all_it_had(durable: Server, namespace: str) -> None:
    with Acker(durable.url, namespace=namespace, shards=3, block_size=30) as acker, durable.client() as client:
        roots, edges = start_roots(acker, 2000)
        acker.ack(roots[:1000], edges[:1000])
        acker.ack(roots[1000:1010], new_edges(10))
        acker.fail(roots[1500:1600])
        acker.extend(roots[1600:1700])
        before = keyspace(client, namespace)
        durable.restart()
        assert keyspace(client, namespace) == before
        assert completed(acker) == roots[:1000].tolist()
        assert acker.pending_count() == 900


def test_after_a_long_stop_old_roots_expire_and_new_ones_live_their_full_time(
    durable: Server, namespace: str, clock: Clock
) -> None:
    with Acker(durable.url, namespace=namespace, timeout_ms=TIMEOUT_MS, clock=clock) as acker:
        rotator = Rotator(acker)
        old, old_edges = start_roots(acker, 500)
        clock.advance(TICK_MS)
        rotator.once()
        durable.kill()
        clock.advance(100 * TIMEOUT_MS)
        durable.restart()

        # What is acked before the rotator comes is in time, however late it is.
        assert acker.ack(old[:100], old_edges[:100]).completed == 100
        new, new_edges_ = start_roots(acker, 500)
        expired: list[int] = []
        elapsed_ms = 0
        while elapsed_ms < TIMEOUT_MS:
            rotator.once()
            expired += failed(acker)
            assert not set(expired) & set(new.tolist())
            clock.advance(1000)
            elapsed_ms += 1000
        assert acker.ack(new[:100], new_edges_[:100]).completed == 100
        clock.advance(2 * TICK_MS)
        rotator.once()
        expired += failed(acker)
        assert sorted(expired) == [*old[100:].tolist(), *new[100:].tolist()]
        assert acker.pending_count() == 0


def test_a_rotator_that_comes_back_to_a_store_without_new_roots_catches_up_at_once(
    durable: Server, namespace: str, clock: Clock
) -> None:
    with Acker(durable.url, namespace=namespace, timeout_ms=TIMEOUT_MS, clock=clock) as acker:
        roots, _ = start_roots(acker, 500)
        durable.restart()
        clock.advance(100 * TIMEOUT_MS)
        assert Rotator(acker).once().expired == 500
        assert failed(acker) == roots.tolist()


@pytest.fixture(params=ONE_SERVER_KINDS)
def forgetful(request: pytest.FixtureRequest, keeper: Keeper) -> Server:
    """A server that writes nothing to disk."""
    return keeper.keep(start_server(request.param))


def test_clients_of_a_server_that_has_lost_everything_go_on_with_new_roots(forgetful: Server, namespace: str) -> None:
    with Acker(forgetful.url, namespace=namespace, timeout_ms=1000) as acker:
        completions = acker.completions(SPOUT)
        failures = acker.failures(SPOUT)
        assert completions.read() == []
        lost, lost_edges = start_roots(acker, 100)
        forgetful.restart()

        assert acker.ack(lost, lost_edges).completed == 0
        roots, edges = start_roots(acker, 500)
        assert not set(roots.tolist()) & set(lost.tolist())
        assert acker.ack(roots[:400], edges[:400]).completed == 400
        assert sorted_roots(completions.consume()) == roots[:400].tolist()
        # What the store forgot, the driver's own timeout fails; what it knows expires.
        with Rotator(acker).start():
            expired = wait_until(failures.read)
        assert sorted_roots(expired) == roots[400:].tolist()
        failures.release(expired)
        assert failures.read() == []


def test_a_store_that_was_lost_gets_the_settings_of_the_clients_that_live_on(forgetful: Server, namespace: str) -> None:
    with Acker(forgetful.url, namespace=namespace, timeout_ms=12_345, shards=2) as acker:
        acker.spout_number("first")
        forgetful.restart()
        start_roots(acker, 10)
        with pytest.raises(SettingsMismatch, match="timeout_ms=12345"):
            Acker(forgetful.url, namespace=namespace, timeout_ms=54_321)


def test_after_a_loss_two_spouts_never_share_a_number(forgetful: Server, namespace: str) -> None:
    with Acker(forgetful.url, namespace=namespace) as acker:
        start_roots(acker, 10, "first")
        forgetful.restart()
        with Acker(forgetful.url, namespace=namespace) as other:
            roots, edges = start_roots(other, 10, "second")
            firsts, first_edges = start_roots(acker, 10, "first")
            acker.ack(firsts, first_edges)
            other.ack(roots, edges)
            assert completed(other, "second") == roots.tolist()
            assert completed(acker, "first") == firsts.tolist()
