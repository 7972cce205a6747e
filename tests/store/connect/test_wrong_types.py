"""Keys that another program has overwritten: a call that needs one is refused, and changes nothing."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import redis

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import WrongKeyType
from redis_acker.store.ids import U64Array
from tests.backends import Servers
from tests.clock import Clock
from tests.store.connect.ledger import ONE_SERVER_KINDS, SPOUT, TICK_MS, keyspace

COUNT = 40
"""Enough for ack vals beside the head, and for a dense ack."""


@dataclass
class Prepared:
    """A ledger with one block of roots, and what completes them."""

    acker: Acker
    clock: Clock
    roots: U64Array
    edges: U64Array

    def init(self) -> None:
        self.acker.init(self.roots, self.edges, message_ids=np.arange(COUNT), echo_ids=True)

    def ack(self, part: slice = slice(None)) -> None:
        self.acker.ack(self.roots[part], self.edges[part])

    def fail(self, part: slice = slice(None)) -> None:
        self.acker.fail(self.roots[part], component="parse", error="no such field")

    def extend(self) -> None:
        self.acker.extend(self.roots[:3])

    def rotate(self, times: int) -> None:
        for _ in range(times):
            self.clock.advance(TICK_MS)
            self.acker.shards.rotate(0, TICK_MS)

    def drain(self) -> None:
        Rotator(self.acker).drain(0)


Step = Callable[[Prepared], None]
FEW = slice(3)
ALL_HEADS = {"heads:0", "heads:1", "heads:2", "heads:expired"}
ALL_FINISHED = {"finished:0", "finished:1", "finished:2"}

#: What is called, what has happened before, and which keys the call needs.
CALLS: dict[str, tuple[list[Step], Step, set[str]]] = {
    "init": ([], Prepared.init, {"meta", "counters", "vals:0", "ids:0", *ALL_HEADS, *ALL_FINISHED}),
    "init of roots that were acked before": (
        [Prepared.ack],
        Prepared.init,
        {"meta", "counters", "heads:0", "vals:0", "ids:0", "finished:0", "completions"},
    ),
    "init of roots of which some failed before": (
        [lambda prepared: prepared.fail(FEW)],
        Prepared.init,
        {"meta", "counters", "heads:0", "vals:0", "ids:0", "failures"},
    ),
    "init a tick after some were acked": (
        [lambda prepared: prepared.ack(FEW), lambda prepared: prepared.rotate(1)],
        Prepared.init,
        {"meta", "counters", "heads:0", "heads:1", "vals:0", "ids:0", "completions"},
    ),
    "ack of all roots": (
        [Prepared.init],
        Prepared.ack,
        {"meta", "counters", "heads:0", "vals:0", "ids:0", "finished:0", "completions"},
    ),
    "ack of a few roots": (
        [Prepared.init],
        lambda prepared: prepared.ack(FEW),
        {"meta", "counters", "heads:0", "vals:0", "ids:0", "completions"},
    ),
    "ack a tick later": (
        [Prepared.init, lambda prepared: prepared.rotate(1)],
        Prepared.ack,
        {"meta", "counters", "heads:0", "heads:1", "vals:1", "ids:1", "finished:0", "completions"},
    ),
    "ack before the init": ([], Prepared.ack, {"meta", "counters", "vals:0", *ALL_HEADS, *ALL_FINISHED}),
    "fail of all roots": (
        [Prepared.init],
        Prepared.fail,
        {"meta", "counters", "heads:0", "vals:0", "ids:0", "finished:0", "failures"},
    ),
    "fail of a few roots": (
        [Prepared.init],
        lambda prepared: prepared.fail(FEW),
        {"meta", "counters", "heads:0", "ids:0", "failures"},
    ),
    "fail before the init": ([], Prepared.fail, {"meta", "counters", *ALL_HEADS, *ALL_FINISHED}),
    "extend": ([Prepared.init], Prepared.extend, {"meta", "counters", "heads:0"}),
    "drain": (
        [Prepared.init, lambda prepared: prepared.rotate(3)],
        Prepared.drain,
        {"meta", "counters", "heads:expired", "vals:expired", "ids:expired", "finished:0", "failures"},
    ),
    "drain of a block with roots that were extended": (
        [Prepared.init, lambda prepared: prepared.rotate(2), Prepared.extend, lambda prepared: prepared.rotate(1)],
        Prepared.drain,
        {"meta", "counters", "heads:expired", "vals:expired", "ids:expired", "heads:1", "vals:1", "ids:1", "failures"},
    ),
}


@pytest.mark.parametrize("kind", ONE_SERVER_KINDS)
@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_that_needs_a_key_of_another_type_is_refused_and_changes_nothing(
    name: str, kind: str, servers: Servers
) -> None:
    before, call, needed = CALLS[name]
    url = servers.get(kind).url
    refused = set()
    with redis.Redis.from_url(url) as client:
        for suffix in key_suffixes(url):
            prepared = prepare(url)
            for step in before:
                step(prepared)
            refused |= overwrite_and_call(client, prepared, suffix, call)
            prepared.acker.close()
    assert refused == needed


def key_suffixes(url: str) -> list[str]:
    """The ends of all keys that a call declares, but for the scratch keys, which are overwritten in any case."""
    with Acker(url, namespace=f"t{secrets.token_hex(4)}") as acker:
        keys = acker.shards.keys[0]
        found = [key.removeprefix(keys.prefix) for key in keys.with_streams([1]) if "scratch" not in key]
    return [suffix.removesuffix(":1") if "s:1" in suffix and suffix[0] in "cf" else suffix for suffix in found]


def prepare(url: str) -> Prepared:
    clock = Clock()
    acker = Acker(url, namespace=f"t{secrets.token_hex(4)}", clock=clock)
    return Prepared(acker, clock, acker.allocate(SPOUT, COUNT), new_edges(COUNT))


def overwrite_and_call(client: redis.Redis, prepared: Prepared, suffix: str, call: Step) -> set[str]:
    """Returns the suffix if the call was refused."""
    acker = prepared.acker
    stream = suffix in ("completions", "failures")
    key = f"{acker.shards.keys[0].prefix}{suffix}" + (f":{acker.spout_number(SPOUT)}" if stream else "")
    client.delete(key)
    client.set(key, "of another program")
    before = keyspace(client, acker.namespace)
    try:
        call(prepared)
    except WrongKeyType:
        assert keyspace(client, acker.namespace) == before
        return {suffix}
    finally:
        for used in client.scan_iter(match=f"*{acker.namespace}*", count=1000):
            client.delete(used)
    return set()


@pytest.mark.parametrize("kind", ONE_SERVER_KINDS)
def test_a_namespace_whose_meta_key_is_of_another_type_is_not_opened(
    kind: str, servers: Servers, namespace: str
) -> None:
    url = servers.get(kind).url
    with redis.Redis.from_url(url) as client:
        client.set(f"acker:{{{namespace}:0}}:meta", "of another program")
        with pytest.raises(WrongKeyType, match="Remove that key or use another namespace"):
            Acker(url, namespace=namespace)


@pytest.mark.parametrize("kind", ONE_SERVER_KINDS)
def test_a_stream_of_another_type_is_not_read(kind: str, servers: Servers, namespace: str) -> None:
    url = servers.get(kind).url
    with redis.Redis.from_url(url) as client, Acker(url, namespace=namespace) as acker:
        number = acker.spout_number(SPOUT)
        client.set(acker.shards.keys[0].completions(number), "of another program")
        with pytest.raises(WrongKeyType):
            acker.completions(SPOUT).read()
