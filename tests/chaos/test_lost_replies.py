"""Connections that are cut after the server has executed a call and before its reply arrives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import redis

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import ServerUnavailable
from redis_acker.store.ids import U64Array
from redis_acker.store.scripts import script
from redis_acker.store.shards_streams import GROUP
from tests.clock import Clock
from tests.proxy import CuttingProxy
from tests.servers import Server
from tests.store.connect.ledger import SPOUT, TICK_MS, completed, keyspace, sorted_roots
from tests.waiting import wait_until

COUNT = 1200
LONG_MS = 3_600_000


@dataclass
class World:
    """A ledger, and roots that are the same whatever server it is on."""

    acker: Acker
    clock: Clock
    roots: U64Array
    edges: U64Array
    children: U64Array

    def init(self) -> None:
        self.acker.init(self.roots, self.edges, message_ids=np.arange(COUNT), echo_ids=True)

    def ack_dense(self) -> None:
        self.acker.ack(self.roots, self.edges ^ self.children, token="dense")

    def ack_sparse(self) -> None:
        self.acker.ack(self.roots[::100], (self.edges ^ self.children)[::100], token="sparse")

    def complete(self) -> None:
        self.acker.ack(self.roots, self.edges, token="complete")

    def complete_some(self) -> None:
        self.acker.ack(self.roots[::100], self.edges[::100], token="complete some")

    def fail(self) -> None:
        self.acker.fail(self.roots[::7], component="parse", error="no such field")

    def extend(self) -> None:
        self.acker.extend(self.roots[::5])

    def tick(self) -> None:
        self.clock.advance(TICK_MS)
        Rotator(self.acker).once()

    def release(self) -> None:
        with self.acker.completions(SPOUT, consumer="driver") as reader:
            while outcomes := reader.read():
                reader.release(outcomes)


Step = Callable[[World], None]

#: Which script's reply is lost, what has happened before, and the call that loses it.
CALLS: dict[str, tuple[str, list[Step], Step]] = {
    "init": ("init", [], World.init),
    "init after acks": ("init", [World.ack_dense], World.init),
    "init after fails": ("init", [World.fail], World.init),
    "init after the last ack": ("init", [World.complete], World.init),
    "dense ack": ("ack", [World.init], World.ack_dense),
    "sparse ack": ("ack", [World.init], World.ack_sparse),
    "dense ack that completes": ("ack", [World.init], World.complete),
    "sparse ack that completes": ("ack", [World.init], World.complete_some),
    "dense ack before the init": ("ack", [], World.ack_dense),
    "sparse ack before the init": ("ack", [], World.ack_sparse),
    "fail": ("fail", [World.init], World.fail),
    "fail before the init": ("fail", [], World.fail),
    "extend": ("extend", [World.init, World.tick], World.extend),
    "rotate": ("rotate", [World.init], World.tick),
    "rotate into death row": ("rotate", [World.init, World.tick, World.tick], World.tick),
    "drain": ("drain", [World.init, World.tick, World.tick], World.tick),
    "drain of blocks with extended roots": (
        "drain",
        [World.init, World.tick, World.extend, World.tick],
        World.tick,
    ),
    "release": ("release", [World.init, World.complete], World.release),
}


def state(server: Server, database: int, namespace: str) -> dict[str, Any]:
    """What is stored, but for the counters of second deliveries, and the times and order of entries in streams."""
    with redis.Redis(port=server.port, db=database) as client:
        found = keyspace(client, namespace)
    assert found
    for key, content in found.items():
        if key.endswith(":counters"):
            content.pop(b"duplicates", None)
            content.pop(b"late", None)
        elif isinstance(content, tuple) and isinstance(content[0], list):
            entries, groups = content
            found[key] = sorted(sorted(fields.items()) for _, fields in entries), [group[:2] for group in groups]
    return found


@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_whose_reply_is_lost_leaves_the_state_of_one_whose_reply_arrives(
    name: str, server: Server, proxy: CuttingProxy, namespace: str
) -> None:
    lost, before, call = CALLS[name]
    edges, children = new_edges(COUNT), new_edges(COUNT)

    def live(url: str, *, cut: bool) -> None:
        clock = Clock()
        with Acker(url, namespace=namespace, block_size=200, clock=clock) as acker:
            world = World(acker, clock, acker.allocate(SPOUT, COUNT), edges, children)
            for step in before:
                step(world)
            if cut:
                proxy.cut_replies(command=script(lost).sha.encode())
            call(world)

    live(server.url, cut=False)
    live(proxy.url.replace("/0", "/1"), cut=True)
    assert proxy.cuts == 1
    assert state(server, 1, namespace) == state(server, 0, namespace)


@pytest.mark.parametrize("name", ["open", "spout", "allocate"])
def test_a_namespace_can_be_opened_when_replies_are_lost(
    name: str, server: Server, proxy: CuttingProxy, namespace: str
) -> None:
    proxy.cut_replies(command=script(name).sha.encode())
    with Acker(proxy.url, namespace=namespace, shards=2) as acker, Acker(server.url, namespace=namespace) as other:
        roots = acker.allocate(SPOUT, 500)
        others = other.allocate(SPOUT, 500)
        assert proxy.cuts == 1
        assert other.spout_number(SPOUT) == acker.spout_number(SPOUT)
        assert not set(roots.tolist()) & set(others.tolist())
        assert other.settings == acker.settings


@pytest.mark.parametrize("command", [b"XREADGROUP", b"XAUTOCLAIM"])
def test_outcomes_are_handed_out_once_when_the_reply_to_a_read_is_lost(
    command: bytes, server: Server, proxy: CuttingProxy, namespace: str
) -> None:
    with Acker(proxy.url, namespace=namespace, block_size=10, shards=2) as acker:
        reader = acker.completions(SPOUT, claim_after_ms=LONG_MS)
        assert reader.read() == []
        roots, edges = acker.allocate(SPOUT, 1000), new_edges(1000)
        acker.init(roots, edges)
        for part in np.array_split(np.arange(1000), 20):
            acker.ack(roots[part], edges[part])
        if command == b"XAUTOCLAIM":
            leave_to_a_dead_reader(server, acker)
        proxy.cut_replies(command=command)
        outcomes = wait_until(reader.read)
        while more := reader.read():
            outcomes += more
        assert proxy.cuts == 1
        assert sorted_roots(outcomes) == roots.tolist()
        reader.release(outcomes)
        assert reader.read() == []


def leave_to_a_dead_reader(server: Server, acker: Acker) -> None:
    """Lets a reader take everything, and have had it for a long time."""
    dead = acker.completions(SPOUT, consumer="dead", claim_after_ms=LONG_MS)
    while dead.read():
        pass
    with redis.Redis(port=server.port) as client:
        for keys in acker.shards.keys:
            stream = keys.completions(acker.spout_number(SPOUT))
            for entry in client.xpending_range(stream, GROUP, "-", "+", 1000, "dead"):
                client.xclaim(stream, GROUP, "dead", 0, [entry["message_id"]], idle=2 * LONG_MS, justid=True)


def test_a_batch_that_was_given_up_can_be_sent_again_with_the_token_of_the_error(
    server: Server, proxy: CuttingProxy, namespace: str
) -> None:
    with Acker(proxy.url, namespace=namespace, retry_for_s=0.1) as acker:
        roots, edges, children = acker.allocate(SPOUT, COUNT), new_edges(COUNT), new_edges(COUNT)
        acker.init(roots, edges)
        proxy.cut_replies(1_000_000, command=b"EVALSHA")
        with pytest.raises(ServerUnavailable) as caught:
            acker.ack(roots, edges ^ children)
        proxy.cut_replies(0)
        assert proxy.cuts > 1
        token = caught.value.token
        assert token is not None
        assert acker.ack(roots, edges ^ children, token=token).applied == 0
        # A batch of its own afterwards is not taken for the one that was given up.
        assert acker.ack(roots, children).completed == COUNT
        assert completed(acker) == roots.tolist()
