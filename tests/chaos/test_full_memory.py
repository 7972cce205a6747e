"""A server whose memory is full refuses new roots, and goes on with those it has."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import redis

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import MemoryFull
from redis_acker.store.ids import U64Array
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import PENDING, SUNK, Place, RunAbout, field_of
from tests.backends import Keeper
from tests.clock import Clock
from tests.servers import Server, start_server
from tests.store.connect.ledger import (
    ONE_SERVER_KINDS,
    SPOUT,
    TICK_MS,
    TIMEOUT_MS,
    completed,
    failed,
    keyspace,
    sorted_roots,
)

ROOM_BYTES = 4_000_000
BLOCK = 100
IDS = [f"order {i:090d}" for i in range(BLOCK)]


@pytest.fixture(params=ONE_SERVER_KINDS)
def server(request: pytest.FixtureRequest, keeper: Keeper) -> Server:
    return keeper.keep(start_server(request.param, "--maxmemory-policy", "noeviction"))


@pytest.fixture
def client(server: Server, keeper: Keeper) -> redis.Redis:
    found: redis.Redis = keeper.enter_context(redis.Redis(port=server.port))
    return found


@pytest.fixture
def acker(server: Server, namespace: str, clock: Clock, keeper: Keeper) -> Acker:
    return keeper.enter_context(
        Acker(server.url, namespace=namespace, block_size=BLOCK, timeout_ms=TIMEOUT_MS, clock=clock)
    )


def leave_room(client: redis.Redis, room_bytes: int) -> None:
    client.config_set("maxmemory", client.info("memory")["used_memory"] + room_bytes)


def init_block(acker: Acker) -> tuple[U64Array, U64Array]:
    roots, edges = acker.allocate(SPOUT, BLOCK), new_edges(BLOCK)
    assert acker.init(roots, edges, message_ids=IDS).initialised == BLOCK
    return roots, edges


def fill(acker: Acker, client: redis.Redis) -> list[tuple[U64Array, U64Array]]:
    """Initialises blocks until one is refused; returns those that were not."""
    leave_room(client, ROOM_BYTES)
    blocks = []
    while True:
        try:
            blocks.append(init_block(acker))
        except MemoryFull:
            break
        assert len(blocks) < 10 * ROOM_BYTES // (BLOCK * 100)
    assert len(blocks) > 100
    be_full(client)
    return blocks


def be_full(client: redis.Redis) -> None:
    """Leaves no room, whatever has been freed since."""
    leave_room(client, -100_000)


def test_nothing_of_a_refused_init_is_stored(acker: Acker, client: redis.Redis, namespace: str) -> None:
    spare = acker.allocate(SPOUT, BLOCK)
    early, early_edges = acker.allocate(SPOUT, BLOCK), new_edges(BLOCK)
    acker.ack(early, early_edges)
    blocks = fill(acker, client)
    assert acker.pending_count() == len(blocks) * BLOCK
    before = keyspace(client, namespace)
    with pytest.raises(MemoryFull, match="refused new roots"):
        acker.init(spare, new_edges(BLOCK), message_ids=IDS)
    # Also not of one that would be complete at once.
    with pytest.raises(MemoryFull):
        acker.init(early, early_edges, message_ids=IDS)
    assert keyspace(client, namespace) == before
    assert acker.inspect(int(spare[0])).state == "unknown"


def test_pending_roots_are_finished_while_memory_is_full_and_make_room_for_new_ones(
    acker: Acker, client: redis.Redis, clock: Clock
) -> None:
    with acker.completions(SPOUT) as completions, acker.failures(SPOUT) as failures:
        assert not completions.read()
        assert not failures.read()
        blocks = fill(acker, client)
        parts = np.array_split(np.arange(len(blocks)), 4)
        roots = [np.concatenate([blocks[i][0] for i in part]) for part in parts]
        edges = [np.concatenate([blocks[i][1] for i in part]) for part in parts]
        children = [new_edges(len(part)) for part in edges]

        for part in range(4):
            assert acker.ack(roots[part], edges[part] ^ children[part]).applied == len(roots[part])
        assert acker.ack(roots[0][::BLOCK], children[0][::BLOCK]).completed == len(parts[0])
        be_full(client)
        assert acker.ack(roots[0], children[0]).completed == len(roots[0]) - len(parts[0])
        be_full(client)
        assert acker.fail(roots[1], component="parse", error="no such field").failed == len(roots[1])
        rotator = Rotator(acker)
        clock.advance(TICK_MS)
        be_full(client)
        assert rotator.once().turned == 1
        be_full(client)
        assert acker.extend(roots[2]) == len(roots[2])
        clock.advance(2 * TICK_MS)
        be_full(client)
        assert rotator.once().expired == len(roots[3])
        be_full(client)
        assert acker.ack(roots[2], children[2]).completed == len(roots[2])

        assert sorted_roots(completions.consume()) == [*roots[0].tolist(), *roots[2].tolist()]
        assert sorted_roots(failures.consume()) == [*roots[1].tolist(), *roots[3].tolist()]
    assert acker.pending_count() == 0
    roots_now, edges_now = init_block(acker)
    assert acker.ack(roots_now, edges_now).completed == BLOCK
    assert completed(acker) == roots_now.tolist()


def test_a_rotation_that_has_to_wait_for_a_drain_waits_while_memory_is_full(
    acker: Acker, client: redis.Redis, clock: Clock
) -> None:
    fill(acker, client)
    for _ in range(3):
        clock.advance(TICK_MS)
        assert acker.shards.rotate(0, TICK_MS)[0] == "turned"
    clock.advance(TICK_MS)
    assert acker.shards.rotate(0, TICK_MS)[0] == "waiting"
    assert acker.stats().shards[0].waits == 1


def test_outcomes_that_nobody_has_read_before_can_be_read_while_memory_is_full(
    acker: Acker, client: redis.Redis
) -> None:
    blocks = fill(acker, client)
    for roots, edges in blocks[::2]:
        assert acker.ack(roots, edges).completed == BLOCK
    for roots, _ in blocks[1::2]:
        assert acker.fail(roots).failed == BLOCK
    be_full(client)
    assert completed(acker) == sorted(chain.from_iterable(roots.tolist() for roots, _ in blocks[::2]))
    assert failed(acker) == sorted(chain.from_iterable(roots.tolist() for roots, _ in blocks[1::2]))


def test_another_client_can_open_the_namespace_while_memory_is_full(
    server: Server, acker: Acker, client: redis.Redis, namespace: str
) -> None:
    blocks = fill(acker, client)
    with Acker(server.url, namespace=namespace) as other:
        assert other.pending_count() == len(blocks) * BLOCK
        assert other.ack(*blocks[0]).completed == BLOCK


def test_an_init_of_many_blocks_that_was_refused_half_way_can_be_repeated(acker: Acker, client: redis.Redis) -> None:
    count = 1000 * BLOCK
    roots, edges = acker.allocate(SPOUT, count), new_edges(count)
    leave_room(client, ROOM_BYTES // 10)
    with pytest.raises(MemoryFull):
        acker.init(roots, edges)
    stored = acker.pending_count()
    assert stored < count
    client.config_set("maxmemory", 0)
    inits = acker.init(roots, edges)
    assert (inits.initialised, inits.duplicates) == (count - stored, stored)
    assert acker.ack(roots, edges).completed == count
    assert completed(acker) == roots.tolist()


def test_a_run_begins_no_portion_while_memory_is_full_but_goes_on_with_those_it_has(
    acker: Acker, client: redis.Redis, clock: Clock
) -> None:
    run = RunProgress(acker, acker.spout_number(SPOUT))
    run.start("run", RunAbout(SPOUT, clock.now_ms, "here", 2, "", ""))
    sunk, pending = (Place(field_of(0, number), 0, 0) for number in range(2))
    portions = [run.begin(place, BLOCK, 1) for place in (sunk, pending)]
    fill(acker, client)
    sequences = client.hgetall(acker.shards.keys[0].sequences)
    with pytest.raises(MemoryFull):
        run.begin(Place(field_of(0, 2), 0, 0), BLOCK, 1)
    for place, portion in zip((sunk, pending), portions, strict=True):
        assert run.reach(place, portion, PENDING) == "kept"
    be_full(client)
    assert run.reach(sunk, portions[0], SUNK, failed=3) == "kept"
    be_full(client)
    with pytest.raises(MemoryFull):
        run.begin(Place(sunk.partition, BLOCK, 1), BLOCK, 2)
    assert client.hgetall(acker.shards.keys[0].sequences) == sequences
    be_full(client)
    left = run.leave(pending.partition)
    assert left is not None
    assert left.tolist() == run.roots_of(portions[1].first, BLOCK).tolist()
    client.config_set("maxmemory", 0)
    assert run.begin(Place(sunk.partition, BLOCK, 1), BLOCK, 2).state == "new"
    assert [(one.done, one.failed, one.rows) for one in run.read()[1]] == [(BLOCK, 3, BLOCK), (0, 0, 0)]
