"""Whole histories in which connections are cut before replies arrive."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from redis_acker import Acker, Token, new_edges
from redis_acker.store.ids import U64Array
from redis_acker.store.transport import Command, _Line
from tests.proxy import CuttingProxy
from tests.servers import Server
from tests.store.connect.ledger import SPOUT, completed, failed, sorted_roots


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
