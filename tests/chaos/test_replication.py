"""Replicas and append-only files hold what the master holds, and never a scratch key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from redis_acker import Acker, Rotator, new_edges
from tests.backends import Keeper
from tests.clock import Clock
from tests.servers import EVERY_WRITE_TO_DISK, HOST, Server, start_server
from tests.store.connect.ledger import ONE_SERVER_KINDS, SPOUT, TICK_MS, keyspace, run_every_operation, start_roots
from tests.waiting import wait_until


@pytest.fixture(params=ONE_SERVER_KINDS)
def master(request: pytest.FixtureRequest, keeper: Keeper, tmp_path: Path) -> Server:
    config = (*EVERY_WRITE_TO_DISK, "--repl-diskless-sync-delay", "0")
    return keeper.keep(start_server(request.param, *config, directory=tmp_path))


@pytest.fixture
def replica(request: pytest.FixtureRequest, master: Server, keeper: Keeper) -> Server:
    kind = request.node.callspec.params["master"]
    found = keeper.keep(start_server(kind))
    with found.client() as client:
        client.replicaof(HOST, master.port)
        wait_until(lambda: client.info("replication")["master_link_status"] == "up")
    return found


def run_mixed_load(acker: Acker, clock: Clock) -> None:
    """Uses every script, and leaves some of everything behind."""
    run_every_operation(acker, clock)
    roots, edges = start_roots(acker, 3000)
    children = new_edges(3000)
    acker.ack(roots, edges ^ children)
    acker.ack(roots[:1000], children[:1000])
    acker.ack(roots[1000::50], children[1000::50])
    acker.fail(roots[1500::60], component="parse", error="no such field")
    early = acker.allocate(SPOUT, 600)
    acker.ack(early, new_edges(600))
    acker.fail(early[::9])
    acker.init(early[:300], new_edges(300), message_ids=[f"early {i}" for i in range(300)])
    clock.advance(TICK_MS)
    Rotator(acker).once()
    acker.extend(roots[2000::3])
    clock.advance(2 * TICK_MS)
    Rotator(acker).once()
    with acker.completions(SPOUT, consumer="driver") as reader:
        outcomes = reader.read()
        reader.release(outcomes[: len(outcomes) // 2])


def test_a_replica_holds_what_its_master_holds(master: Server, replica: Server, namespace: str, clock: Clock) -> None:
    with Acker(master.url, namespace=namespace, shards=2, block_size=100, clock=clock) as acker:
        run_mixed_load(acker, clock)
    with master.client() as client, replica.client() as copy:
        client.set("last write", "1")
        wait_until(lambda: copy.get("last write") == b"1")
        found = keyspace(copy, namespace)
        assert found == keyspace(client, namespace)
        assert found
        assert not [key for key in found if "scratch" in key]


def test_a_server_restarted_from_its_append_only_file_holds_what_it_held(
    master: Server, namespace: str, clock: Clock
) -> None:
    with Acker(master.url, namespace=namespace, shards=2, block_size=100, clock=clock) as acker:
        run_mixed_load(acker, clock)
        with master.client() as client:
            before = keyspace(client, namespace)
            master.restart()
            assert keyspace(client, namespace) == before
    written = b"".join(path.read_bytes() for path in master.directory.rglob("*.aof"))
    assert namespace.encode() in written
    assert b"scratch:" not in written


def test_a_replica_that_is_promoted_goes_on_where_its_master_was(
    master: Server, replica: Server, namespace: str, clock: Clock
) -> None:
    with Acker(master.url, namespace=namespace, block_size=100, clock=clock) as acker:
        roots, edges = start_roots(acker, 1000)
        children = new_edges(1000)
        acker.ack(roots, edges ^ children, token="first step")
        with master.client() as client:
            assert client.wait(1, 10_000) == 1
    master.kill()
    with replica.client() as client:
        client.replicaof("NO", "ONE")
    with Acker(replica.url, namespace=namespace, create=False, clock=clock) as acker:
        # The token was replicated with what it stands for.
        assert acker.ack(roots, edges ^ children, token="first step").applied == 0
        assert acker.ack(roots, children).completed == 1000
        assert np.array_equal(np.sort(np.concatenate([one.roots for one in acker.completions(SPOUT).read()])), roots)
