"""Readers of outcomes that die, come back, or share the work."""

from __future__ import annotations

import numpy as np
import pytest
import redis

from redis_acker import Acker, Completion, new_edges
from redis_acker.store.event_reader import EventReader
from redis_acker.store.ids import U64Array
from redis_acker.store.shards_streams import GROUP
from tests.backends import Keeper
from tests.chaos.workers import Process, hold_outcomes
from tests.servers import Server
from tests.store.connect.ledger import SPOUT, sorted_roots
from tests.waiting import wait_until

ENTRIES = 250
"""More than one read takes."""

NEVER_MS = 3_600_000


@pytest.fixture
def acker(server: Server, namespace: str, keeper: Keeper) -> Acker:
    return keeper.enter_context(Acker(server.url, namespace=namespace, block_size=4))


@pytest.fixture
def stream(acker: Acker) -> str:
    """The key of the completions, with a group that has read nothing yet."""
    with acker.completions(SPOUT) as reader:
        assert reader.read() == []
    return acker.shards.keys[0].completions(acker.spout_number(SPOUT))


@pytest.fixture
def client(server: Server, keeper: Keeper) -> redis.Redis:
    found: redis.Redis = keeper.enter_context(redis.Redis(port=server.port))
    return found


def complete_in_entries(acker: Acker) -> U64Array:
    """Roots whose completions are in many entries."""
    count = 4 * ENTRIES
    roots, edges = acker.allocate(SPOUT, count), new_edges(count)
    acker.init(roots, edges)
    for part in np.split(np.arange(count), ENTRIES):
        acker.ack(roots[part], edges[part])
    return roots


def held_by(client: redis.Redis, stream: str, consumer: str) -> int:
    return len(client.xpending_range(stream, GROUP, "-", "+", 10_000, consumer))


def read_all(reader: EventReader[Completion]) -> list[Completion]:
    found = []
    while outcomes := reader.read():
        found += outcomes
    return found


def assert_nothing_is_left(client: redis.Redis, stream: str) -> None:
    assert client.xlen(stream) == 0
    assert client.xpending(stream, GROUP)["pending"] == 0


@pytest.fixture
def roots_of_the_dead(server: Server, acker: Acker, client: redis.Redis, stream: str, keeper: Keeper) -> U64Array:
    """Roots whose completions were all taken by a process that was killed before it released any."""
    roots = complete_in_entries(acker)
    process = keeper.keep(Process(hold_outcomes, server.url, acker.namespace, SPOUT, "dead"))
    wait_until(lambda: held_by(client, stream, "dead") == ENTRIES, timeout_s=30)
    process.kill()
    return roots


def test_another_reader_claims_what_a_dead_one_held(
    acker: Acker, client: redis.Redis, stream: str, roots_of_the_dead: U64Array
) -> None:
    with acker.completions(SPOUT, claim_after_ms=NEVER_MS) as patient:
        assert patient.read() == []
    with acker.completions(SPOUT, claim_after_ms=1) as reader:
        claimed: list[Completion] = []
        while len(claimed) < ENTRIES:
            outcomes = wait_until(reader.read)
            reader.release(outcomes)
            claimed += outcomes
        assert sorted_roots(claimed) == roots_of_the_dead.tolist()
        assert reader.read() == []
    assert_nothing_is_left(client, stream)


def test_a_reader_under_the_same_name_gets_back_what_it_held(
    acker: Acker, client: redis.Redis, stream: str, roots_of_the_dead: U64Array
) -> None:
    more = complete_in_entries(acker)
    with acker.completions(SPOUT, consumer="dead", claim_after_ms=NEVER_MS) as reader:
        outcomes = read_all(reader)
        assert sorted_roots(outcomes[:ENTRIES]) == roots_of_the_dead.tolist()
        assert sorted_roots(outcomes[ENTRIES:]) == more.tolist()
        reader.release(outcomes)
    assert_nothing_is_left(client, stream)


def test_a_reader_behind_many_entries_of_living_ones_still_finds_those_of_a_dead_one(
    acker: Acker, client: redis.Redis, stream: str
) -> None:
    for _ in range(5):
        complete_in_entries(acker)
    living = acker.completions(SPOUT, consumer="living", claim_after_ms=NEVER_MS)
    assert len(read_all(living)) == 5 * ENTRIES
    last = complete_in_entries(acker)
    dead = acker.completions(SPOUT, consumer="dead", claim_after_ms=NEVER_MS)
    assert len(read_all(dead)) == ENTRIES
    # Only what the dead one holds has been idle for long.
    for entry in client.xpending_range(stream, GROUP, "-", "+", 10_000, "dead"):
        client.xclaim(stream, GROUP, "dead", 0, [entry["message_id"]], idle=NEVER_MS, justid=True)
    with acker.completions(SPOUT, claim_after_ms=NEVER_MS // 2) as reader:
        claimed: list[Completion] = []
        while len(claimed) < ENTRIES:
            claimed += wait_until(reader.read)
        assert sorted_roots(claimed) == last.tolist()
        reader.release(claimed)
    assert client.xpending(stream, GROUP)["pending"] == 5 * ENTRIES


def test_readers_share_the_entries_and_leave_nothing_behind(acker: Acker, client: redis.Redis, stream: str) -> None:
    roots = complete_in_entries(acker)
    first, second = acker.completions(SPOUT), acker.completions(SPOUT)
    found: list[Completion] = []
    while outcomes := [*first.read(), *second.read()]:
        found += outcomes
    assert sorted_roots(found) == roots.tolist()
    first.release(found)
    first.close()
    second.close()
    assert_nothing_is_left(client, stream)
    assert client.xinfo_consumers(stream, GROUP) == []


def test_a_reader_that_closes_leaves_what_it_holds_to_others(acker: Acker, client: redis.Redis, stream: str) -> None:
    roots = complete_in_entries(acker)
    with acker.completions(SPOUT, consumer="tired") as tired:
        assert sorted_roots(read_all(tired)) == roots.tolist()
    assert held_by(client, stream, "tired") == ENTRIES
    with acker.completions(SPOUT, consumer="tired") as again:
        outcomes = read_all(again)
        assert sorted_roots(outcomes) == roots.tolist()
        again.release(outcomes)
    assert_nothing_is_left(client, stream)


def test_an_outcome_can_be_released_twice(acker: Acker, client: redis.Redis, stream: str) -> None:
    complete_in_entries(acker)
    with acker.completions(SPOUT) as reader:
        outcomes = read_all(reader)
        reader.release(outcomes)
        reader.release(outcomes)
        assert reader.read() == []
    assert_nothing_is_left(client, stream)
