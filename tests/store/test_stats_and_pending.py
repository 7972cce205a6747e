"""Looking at the store: counters, one root, and pages of pending roots."""

import itertools
from collections import Counter

import numpy as np
import pytest

from redis_acker import Acker, Rotator, new_edge, new_edges
from redis_acker.errors import BadInput
from redis_acker.store.ids import U64Array
from redis_acker.store.pending import PendingRoot, RootState
from redis_acker.store.stats import Latency, SpoutStats
from tests.backends import Backend
from tests.clock import Clock

TICK_MS = 15_000


def start(acker: Acker, count: int, spout: str = "orders", **options: object) -> tuple[U64Array, U64Array]:
    roots, edges = acker.allocate(spout, count), new_edges(count)
    acker.init(roots, edges, **options)  # type: ignore[arg-type]
    return roots, edges


# -- one root ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 20])
def test_a_pending_root_is_shown_with_all_that_is_known(acker: Acker, clock: Clock, size: int) -> None:
    roots, edges = start(acker, size, message_ids=[f"m{i}" for i in range(size)], attempts=3)
    clock.advance(1000)
    last = int(roots[-1])
    state = acker.inspect(last)
    assert state == RootState(
        last,
        "pending",
        0,
        "orders",
        int(edges[-1]),
        f"m{size - 1}",
        3,
        1000,
        bucket=0,
        expires_in_ms=3 * TICK_MS - 1000,
    )
    clock.advance(TICK_MS - 1000)
    Rotator(acker).once()
    assert (acker.inspect(last).bucket, acker.inspect(last).expires_in_ms) == (1, 2 * TICK_MS)


def test_an_extended_root_is_shown_to_expire_later_than_its_neighbours(acker: Acker, clock: Clock) -> None:
    roots, _ = start(acker, 20)
    clock.advance(TICK_MS)
    Rotator(acker).once()
    acker.extend(roots[3])
    assert acker.inspect(int(roots[3])).expires_in_ms == 3 * TICK_MS
    assert acker.inspect(int(roots[4])).expires_in_ms == 2 * TICK_MS


def test_an_overdue_root_is_shown_to_expire_now(acker: Acker, clock: Clock) -> None:
    roots, _ = start(acker, 1)
    clock.advance(10 * TICK_MS)
    assert acker.inspect(int(roots[0])).expires_in_ms == 0
    assert acker.inspect(int(roots[0])).age_ms == 10 * TICK_MS


def test_an_orphan_is_shown_with_its_ack_val(acker: Acker) -> None:
    roots, edge = acker.allocate("orders", 20), new_edge()
    acker.ack(roots[3], edge)
    state = acker.inspect(int(roots[3]))
    assert (state.state, state.ack_val, state.message_id, state.bucket) == ("orphan", edge, None, None)
    acker.fail(acker.allocate("orders"))
    assert acker.inspect(int(roots[10])).ack_val == 0


def test_a_finished_root_is_shown_as_such_while_its_block_lives_and_a_while_after(acker: Acker, clock: Clock) -> None:
    roots, edges = start(acker, 20)
    acker.ack(roots[3], edges[3])
    assert acker.inspect(int(roots[3])).state == "finished"
    acker.ack(roots, edges)
    assert acker.inspect(int(roots[4])).state == "finished"
    for _ in range(3):
        clock.advance(TICK_MS)
        Rotator(acker).once()
    assert acker.inspect(int(roots[4])).state == "unknown"


def test_a_root_that_was_never_seen_is_unknown(acker: Acker) -> None:
    roots, _ = start(acker, 20)
    never = acker.inspect(int(acker.allocate("orders")[0]))
    assert (never.state, never.spout) == ("unknown", "orders")
    assert acker.inspect(int(roots[-1]) + 1).state == "unknown"
    nobody = acker.inspect(-1)
    assert (nobody.root, nobody.state, nobody.spout) == (2**64 - 1, "unknown", None)


# -- pages ---------------------------------------------------------------------------------------------------------


def test_every_pending_root_is_listed(acker: Acker, clock: Clock) -> None:
    roots, edges = start(acker, 700, message_ids=np.arange(700), attempts=2)
    acker.ack(roots[:650], edges[:650])
    acker.fail(roots[650])
    acker.ack(acker.allocate("orders", 5), new_edges(5))
    clock.advance(123)
    listed = list(acker.pending())
    assert [one.root for one in listed] == roots[651:].tolist()
    assert listed[0] == PendingRoot(int(roots[651]), "orders", 0, 651, 2, 123, 0)


def test_a_listing_is_read_page_by_page(backend: Backend, namespace: str, clock: Clock) -> None:
    with Acker(backend.target, namespace=namespace, shards=1, block_size=1, clock=clock) as acker:
        roots, _ = start(acker, 1000)
        listing = acker.pending()
        first = [next(listing).root for _ in range(3)]
        assert Counter(one.root for one in itertools.chain(listing)) + Counter(first) == Counter(roots.tolist())


def list_while_rotating(acker: Acker, clock: Clock, steps_at: set[int]) -> list[int]:
    """What a listing shows that is interrupted by steps of rotation, each after so many roots."""
    listed: list[int] = []
    for one in acker.pending():
        listed.append(one.root)
        if len(listed) in steps_at:
            clock.advance(acker.settings.tick_ms)
            assert Rotator(acker).once().turned == acker.settings.shards
    return listed


def test_a_listing_goes_on_while_rotations_rename_the_buckets(backend: Backend, namespace: str, clock: Clock) -> None:
    with Acker(backend.target, namespace=namespace, shards=2, block_size=1, buckets=5, clock=clock) as acker:
        roots: list[int] = []
        for _ in range(2):
            roots += start(acker, 400)[0].tolist()
            clock.advance(acker.settings.tick_ms)
            Rotator(acker).once()
        listed = list_while_rotating(acker, clock, {60, 500})
        assert Counter(listed) == Counter(roots)


def test_a_listing_finds_roots_that_are_filed_again_meanwhile(backend: Backend, namespace: str, clock: Clock) -> None:
    with Acker(backend.target, namespace=namespace, shards=1, block_size=1, clock=clock) as acker:
        old, _ = start(acker, 300)
        for _ in range(2):
            clock.advance(TICK_MS)
            Rotator(acker).once()
        young, _ = start(acker, 300)
        assert acker.extend(old) == 300
        listed = list_while_rotating(acker, clock, {60})
        assert set(listed) == {*old.tolist(), *young.tolist()}
        assert acker.pending_count() == 600


def test_a_listing_can_be_narrowed(acker: Acker, namespace: str, clock: Clock) -> None:
    old, _ = start(acker, 3)
    clock.advance(500)
    young, _ = start(acker, 3)
    other, _ = start(acker, 3, "payments")
    assert {one.root for one in acker.pending(older_than_ms=500)} == set(old.tolist())
    assert list(acker.pending(older_than_ms=501)) == []
    assert {one.root for one in acker.pending(spout="payments")} == set(other.tolist())
    assert {one.root for one in acker.pending(spout="orders")} == {*old.tolist(), *young.tolist()}
    assert {one.root for one in acker.pending(spout="orders", older_than_ms=1)} == set(old.tolist())


def test_a_listing_of_one_shard_has_the_roots_of_that_shard(backend: Backend, namespace: str) -> None:
    with Acker(backend.target, namespace=namespace, shards=3, block_size=1) as acker:
        roots, _ = start(acker, 60)
        parts = [{one.root for one in acker.pending(shard=shard)} for shard in range(3)]
        assert sum(map(len, parts)) == 60
        assert set.union(*parts) == set(roots.tolist())
        assert all(parts)
        assert [one.pending for one in acker.stats().shards] == [len(part) for part in parts]


def test_old_roots_come_first(acker: Acker, clock: Clock) -> None:
    old, _ = start(acker, 3)
    clock.advance(TICK_MS)
    Rotator(acker).once()
    young, _ = start(acker, 3)
    assert [one.root for one in acker.pending()] == [*old.tolist(), *young.tolist()]
    assert [one.bucket for one in acker.pending()] == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("wrong", [{"spout": "nobody"}, {"shard": 1}, {"shard": -1}, {"shard": "0"}])
def test_a_listing_of_what_is_not_there_is_refused(acker: Acker, wrong: dict[str, object]) -> None:
    start(acker, 1)
    with pytest.raises(BadInput, match="has"):
        list(acker.pending(**wrong))  # type: ignore[arg-type]


# -- counters ------------------------------------------------------------------------------------------------------


def test_counters_tell_what_became_of_every_root(acker: Acker, clock: Clock) -> None:
    roots, edges = start(acker, 10)
    start(acker, 4, "payments")
    acker.ack(roots[:5], edges[:5])
    acker.fail(roots[5:7])
    acker.ack(roots[:1], edges[:1])
    acker.init(roots, edges)
    assert acker.pending_count() == 7
    assert (acker.pending_count("orders"), acker.pending_count("payments"), acker.pending_count("none")) == (3, 4, 0)
    for _ in range(3):
        clock.advance(TICK_MS)
        Rotator(acker).once()
    stats = acker.stats()
    assert stats.spouts == [SpoutStats("orders", 10, 5, 2, 3, 0, 0), SpoutStats("payments", 4, 0, 0, 4, 0, 0)]
    [shard] = stats.shards
    assert (shard.pending, shard.acked, shard.late, shard.duplicates, shard.orphans) == (0, 5, 1, 10, 0)
    assert (shard.tick, shard.late_ms) == (3, 0)
    assert stats.components == {"": 2}


def test_replays_are_counted_where_they_become_pending(acker: Acker) -> None:
    start(acker, 10, message_ids=range(10), attempts=2)
    start(acker, 3, attempts=[1, 2, 3])
    start(acker, 5)
    assert acker.stats().spouts[0].replayed == 12


def test_latencies_are_counted_up_to_each_bound(acker: Acker, clock: Clock) -> None:
    for age_ms in (0, 10, 11, 3_600_000, 3_600_001):
        roots, edges = start(acker, 3)
        clock.advance(age_ms)
        acker.ack(roots[:2], edges[:2])
    found = acker.stats().latencies["orders"]
    assert (found.counts[0], found.counts[1], *found.counts[-2:]) == (4, 2, 2, 2)
    assert (found.count, found.sum_ms) == (10, 2 * (10 + 11 + 3_600_000 + 3_600_001))
    assert (found.at_most_ms(0.4), found.at_most_ms(0.5), found.at_most_ms(0.95)) == (10, 25, None)
    assert found.since(found).at_most_ms(0.5) is None
    assert found.since(Latency((*found.counts[:-1], 3), 0)) == found


def test_a_clock_that_was_set_back_counts_as_no_latency(acker: Acker, clock: Clock) -> None:
    roots, edges = start(acker, 1)
    clock.advance(-5_000)
    acker.ack(roots, edges)
    assert acker.stats().latencies["orders"].sum_ms == 0


def test_a_shard_names_the_first_hundred_components_and_no_more(acker: Acker) -> None:
    roots, _ = start(acker, 120)
    for i, root in enumerate(roots.tolist()):
        acker.fail(root, component=f"c{i}:\xff")
    acker.fail(start(acker, 5)[0], component="c7:\xff")
    components = acker.stats().components
    assert len(components) == 101
    assert (components["c7:\xff"], components["c99:\xff"], components[None]) == (6, 1, 20)


def test_a_rotation_that_comes_late_is_counted(acker: Acker, clock: Clock) -> None:
    clock.advance(TICK_MS + 700)
    Rotator(acker).once()
    assert acker.stats().shards[0].late_ms == 700


def test_spouts_keep_their_numbers(acker: Acker) -> None:
    numbers = [acker.spout_number(name) for name in ("a", "b", "é", "a")]
    assert numbers[3] == numbers[0]
    assert acker.spout_names() == dict(zip(numbers[:3], ("a", "b", "é"), strict=True))
