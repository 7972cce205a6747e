"""Connections that are cut after the server has executed a call and before its reply arrives."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import redis
from numpy.typing import NDArray

from redis_acker import Acker, Rotator, Token, new_edges
from redis_acker.errors import ServerUnavailable
from redis_acker.ids import U64Array
from redis_acker.scripts import script
from redis_acker.streams import GROUP
from redis_acker.transport import Command, _Line
from tests.backends import Servers
from tests.clock import Clock
from tests.connect.ledger import (
    ONE_SERVER_KINDS,
    SPOUT,
    TICK_MS,
    Keeper,
    completed,
    failed,
    keyspace,
    sorted_roots,
)
from tests.proxy import CuttingProxy
from tests.servers import Server
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


@pytest.fixture(params=ONE_SERVER_KINDS)
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    found = servers.get(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture
def proxy(server: Server, keeper: Keeper) -> CuttingProxy:
    return keeper.keep(CuttingProxy("127.0.0.1", server.port))


def state(server: Server, database: int, namespace: str) -> dict[str, Any]:
    """What is stored, but for the counters of second deliveries, and the times and order of entries in streams."""
    with redis.Redis(port=server.port, db=database) as client:
        found = keyspace(client, namespace)
    assert found
    for key, content in found.items():
        if key.endswith(":meta"):
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
        for keys in acker.shard_keys:
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


# -- whole histories ---------------------------------------------------------------------------------------------


@dataclass
class Tree:
    """Roots whose spout sends one edge, which becomes two, each of which is acked on its own."""

    roots: U64Array
    first: U64Array
    left: U64Array
    right: U64Array

    def deltas(self) -> list[U64Array]:
        return [self.first ^ self.left ^ self.right, self.left, self.right]


def steps_of_history(
    acker: Acker, tree: Tree, failing: NDArray[np.int64], rng: random.Random
) -> Iterator[Callable[[], object]]:
    """Calls in random order: inits of parts, fails, and the acks of all but the failing roots in random batches."""
    lasting = np.setdiff1d(np.arange(len(tree.roots)), failing)
    calls: list[Callable[[], object]] = []
    part_size = 4 * acker.settings.block_size
    for start in range(0, len(tree.roots), part_size):
        part = slice(start, start + part_size)
        calls.append(partial(acker.init, tree.roots[part], tree.first[part]))
    for batch in np.array_split(failing, 10):
        calls += [partial(acker.fail, tree.roots[batch]), partial(acker.extend, tree.roots[batch])]
    for delta in tree.deltas():
        order = np.random.default_rng(rng.randrange(1 << 30)).permutation(lasting)
        for batch in np.split(order, sorted(rng.sample(range(1, len(order)), 40))):
            calls.append(partial(acker.ack, tree.roots[batch], delta[batch]))
    rng.shuffle(calls)
    yield from calls


def live_history(
    acker: Acker, proxy: CuttingProxy, probability: float, seed: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Runs a history while replies are lost; returns completed and failed roots, as they should be and as they are."""
    count, rng = 4000, random.Random(seed)
    roots = acker.allocate(SPOUT, count)
    tree = Tree(roots, new_edges(count), new_edges(count), new_edges(count))
    failing = np.array(sorted(rng.sample(range(count), 100)))
    completions, failures = acker.completions(SPOUT), acker.failures(SPOUT)
    found: tuple[list[Any], list[Any]] = [], []
    proxy.cut_randomly(probability, seed)
    for number, step in enumerate(steps_of_history(acker, tree, failing, rng)):
        step()
        if number % 20 == 0:
            found[0].extend(completions.read())
            found[1].extend(failures.consume())
    while more := completions.read():
        found[0].extend(more)
    found[1].extend(failures.consume())
    completions.release(found[0])
    proxy.cut_randomly(0, seed)
    lasting = sorted(set(roots.tolist()) - set(roots[failing].tolist()))
    return lasting, sorted_roots(found[0]), roots[failing].tolist(), sorted_roots(found[1])


@pytest.mark.parametrize("seed", [1, 2])
def test_every_root_has_one_final_event_however_many_replies_are_lost(
    seed: int, server: Server, proxy: CuttingProxy, namespace: str
) -> None:
    with Acker(proxy.url, namespace=namespace, block_size=50, shards=3, timeout_ms=600_000) as acker:
        to_complete, completions, to_fail, failures = live_history(acker, proxy, 0.1, seed)
        assert proxy.cuts > 20
        assert completions == to_complete
        assert failures == to_fail
        assert acker.pending_count() == 0
        assert completed(acker) == []
        assert failed(acker) == []


def test_without_tokens_the_same_history_goes_wrong(
    server: Server, proxy: CuttingProxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = set()
    packed, send = Token.packed, _Line.send

    def remember(token: Token) -> bytes:
        tokens.add(packed(token))
        return packed(token)

    def send_with_new_token(line: _Line, i: int, command: Command) -> None:
        args = tuple(os.urandom(12) if argument in tokens else argument for argument in command.args)
        send(line, i, replace(command, args=args))

    monkeypatch.setattr(Token, "packed", remember)
    monkeypatch.setattr(_Line, "send", send_with_new_token)
    with Acker(proxy.url, namespace=namespace, block_size=50, shards=3, timeout_ms=600_000) as acker:
        to_complete, completions, to_fail, failures = live_history(acker, proxy, 0.1, 1)
        assert proxy.cuts > 20
        assert tokens
        assert set(completions) < set(to_complete)
        assert failures == to_fail
        assert acker.pending_count() > 0
