"""A root without final event expires between T and T * (1 + 1/(buckets - 1)) after its init."""

from collections.abc import Callable

import numpy as np
import pytest

from redis_acker import new_edge, new_edges
from tests.lua.conftest import OpenLedger
from tests.lua.ledger import SPOUT, TICK_MS, TIMEOUT_MS, Ledger, as_ints


def turn_until_expired(ledger: Ledger) -> None:
    """Rotates as early as allowed, as a rotator does that never sleeps too long."""
    while ledger.acker.pending_count():
        due_in_ms = ledger.rotator.once().due_in_ms
        ledger.clock.advance(due_in_ms)


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_a_root_expires_in_time_whenever_it_was_born(open_ledger: OpenLedger, buckets: int) -> None:
    ledger = open_ledger(shards=1, buckets=buckets)
    tick_ms = ledger.acker.settings.tick_ms
    for wait_ms in (0, 1, tick_ms // 2, tick_ms - 1):
        ledger.clock.advance(wait_ms)
        root, _ = ledger.start_one()
        turn_until_expired(ledger)
        [failure] = ledger.failures()
        assert (failure.root, failure.reason) == (root, "timeout")
        assert TIMEOUT_MS <= failure.age_ms <= TIMEOUT_MS * (1 + 1 / (buckets - 1))


def test_a_root_is_pending_until_the_timeout_and_failed_after_half_as_long_again(ledger: Ledger) -> None:
    root, edge = ledger.start_one()
    ledger.pass_time(TIMEOUT_MS)
    assert ledger.acker.inspect(root).state == "pending"
    assert ledger.failed() == []
    assert ledger.pass_time(TICK_MS).expired == 1
    assert ledger.failed() == [root]
    assert ledger.acker.ack(root, edge).late == 1


def test_a_store_that_was_idle_for_long_does_not_age_a_new_root(ledger: Ledger) -> None:
    """Nobody rotated: the steps that are due were made by time before the root was born."""
    old, _ = ledger.start_one()
    ledger.clock.advance(20 * TIMEOUT_MS)
    young, _ = ledger.start_one()
    assert ledger.rotator.once().expired == 1
    assert ledger.failed() == [old]
    assert ledger.pass_time(TIMEOUT_MS - 1).expired == 0
    assert ledger.acker.inspect(young).state == "pending"
    turn_until_expired(ledger)
    [failure] = ledger.failures()
    assert TIMEOUT_MS <= failure.age_ms <= TIMEOUT_MS + TICK_MS


LATE_COMERS: dict[str, Callable[[Ledger, int, int], object]] = {
    "extend": lambda ledger, root, fresh: ledger.acker.extend(root),
    "ack": lambda ledger, root, fresh: ledger.acker.ack(root, new_edge()),
    "early ack": lambda ledger, root, fresh: ledger.acker.ack(fresh, new_edge()),
    "early fail": lambda ledger, root, fresh: ledger.acker.fail(fresh),
}


@pytest.mark.parametrize("late_comer", LATE_COMERS)
def test_what_comes_after_a_long_time_without_rotator_has_the_whole_timeout(
    open_ledger: OpenLedger, late_comer: str
) -> None:
    ledger = open_ledger(shards=1, ack_restarts_clock=True)
    root, _ = ledger.start_one()
    fresh = int(ledger.acker.allocate(SPOUT)[0])
    ledger.clock.advance(20 * TIMEOUT_MS)
    LATE_COMERS[late_comer](ledger, root, fresh)
    ledger.rotator.once()
    ledger.pass_time(TIMEOUT_MS - 1)
    if late_comer.startswith("early"):
        assert ledger.acker.inspect(fresh).state == "orphan"
    else:
        assert ledger.acker.inspect(root).state == "pending"


def test_rotation_needs_no_traffic(ledger: Ledger) -> None:
    ledger.start(5)
    assert [ledger.pass_time(TICK_MS).expired for _ in range(4)] == [0, 0, 5, 0]


def test_a_step_that_is_not_due_is_refused(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1)
    ledger.clock.advance(TICK_MS - 1)
    assert ledger.turn() == "early"
    ledger.clock.advance(1)
    assert [ledger.turn() for _ in range(3)] == ["turned", "early", "early"]
    assert ledger.count("tick") == 1


def test_rotation_waits_for_the_drain_and_says_so(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1)
    roots, _ = ledger.start(20)
    ledger.expire_undrained()
    young, _ = ledger.start_one()
    ledger.clock.advance(TICK_MS)
    assert [ledger.turn(), ledger.turn()] == ["waiting", "waiting"]
    assert ledger.count("waits") == 2
    assert ledger.rotator.drain(0)[0] == 20
    assert ledger.turn() == "turned"
    assert ledger.failed() == as_ints(roots)
    assert ledger.acker.inspect(young).state == "pending"


def test_a_clock_set_back_does_not_stall_rotation(ledger: Ledger) -> None:
    ledger.start(3)
    ledger.clock.advance(-100 * TIMEOUT_MS)
    ledger.rotator.once()
    assert sum(ledger.pass_time(TICK_MS).expired for _ in range(4)) == 3
    assert [one.age_ms for one in ledger.failures()] == [0, 0, 0]


@pytest.mark.parametrize("size", [1, 9])
def test_acks_find_blocks_that_are_expired_but_not_drained(open_ledger: OpenLedger, size: int) -> None:
    ledger = open_ledger(shards=1)
    roots, edges = ledger.start(size)
    ledger.expire_undrained()
    assert ledger.acker.ack(roots, edges).completed == size
    assert ledger.rotator.drain(0)[0] == 0
    assert (ledger.completed(), ledger.failed()) == (as_ints(roots), [])


def test_an_expired_block_times_out_only_with_the_roots_that_are_left(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1)
    roots, edges = ledger.start(30, message_ids=np.arange(30))
    ledger.expire_undrained()
    ledger.acker.ack(roots[:10], edges[:10])
    ledger.acker.fail(roots[10:20])
    assert ledger.rotator.drain(0)[0] == 10
    assert ledger.completed() == as_ints(roots[:10])
    failures = ledger.failures()
    assert [one.message_id for one in failures] == list(range(10, 30))
    assert [one.reason for one in failures] == ["failed"] * 10 + ["timeout"] * 10


def test_draining_twice_times_out_once(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1)
    roots, _ = ledger.start(3)
    ledger.expire_undrained()
    block = int(roots[0]).to_bytes(8, "big")
    part = [ledger.acker.spout_number(SPOUT)], block
    assert ledger.acker.shards.drain(0, [part, part]) == [[3, 0, 0], [0, 0, 0]]
    assert ledger.failed() == as_ints(roots)


# -- extend --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 20])
def test_extend_keeps_one_root_and_not_its_neighbours(ledger: Ledger, size: int) -> None:
    roots, edges = ledger.start(size, message_ids=[f"m{i}" for i in range(size)])
    ledger.pass_time(TICK_MS)
    assert ledger.acker.extend(roots[1]) == 1
    assert [ledger.pass_time(TICK_MS).expired for _ in range(2)] == [0, size - 1]
    assert ledger.failed() == as_ints(np.delete(roots, 1))
    assert ledger.acker.inspect(int(roots[1])).ack_val == edges[1]
    ledger.pass_time(TICK_MS)
    assert [(one.root, one.message_id) for one in ledger.failures()] == [(int(roots[1]), "m1")]


def test_two_extends_in_different_generations(ledger: Ledger) -> None:
    roots, _ = ledger.start(20)
    ledger.pass_time(TICK_MS)
    assert ledger.acker.extend(roots[3]) == 1
    ledger.pass_time(TICK_MS)
    assert ledger.acker.extend(roots[7]) == 1
    expired = [as_ints(ledger.failed()) if ledger.pass_time(TICK_MS).expired else [] for _ in range(3)]
    assert expired == [as_ints(np.delete(roots, [3, 7])), [int(roots[3])], [int(roots[7])]]


@pytest.mark.parametrize("size", [3, 20])
def test_a_block_that_is_extended_whole_and_then_in_part(ledger: Ledger, size: int) -> None:
    roots, _ = ledger.start(size, message_ids=[f"m{i}" for i in range(size)])
    ledger.pass_time(TICK_MS)
    assert ledger.acker.extend(roots) == size
    ledger.pass_time(TICK_MS)
    assert ledger.acker.extend(roots[1]) == 1
    expired = [as_ints(ledger.failed()) if ledger.pass_time(TICK_MS).expired else [] for _ in range(3)]
    assert expired == [[], as_ints(np.delete(roots, 1)), [int(roots[1])]]


def test_a_block_that_is_extended_in_part_and_then_whole(ledger: Ledger) -> None:
    roots, edges = ledger.start(20)
    ledger.pass_time(TICK_MS)
    assert ledger.acker.extend(roots[3:9]) == 6
    assert ledger.acker.ack(roots[:5], edges[:5]).completed == 5
    ledger.pass_time(TICK_MS)
    assert ledger.acker.extend(roots[5:]) == 15  # all that are pending
    expired = [as_ints(ledger.failed()) if ledger.pass_time(TICK_MS).expired else [] for _ in range(3)]
    assert expired == [[], [], as_ints(roots[5:])]


def test_a_block_that_is_extended_whole_takes_no_memory_for_each_root(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1, block_size=500)
    roots, _ = ledger.start(500)
    shards = ledger.acker.shards

    def head_bytes() -> int:
        return sum(len(head) for bucket in range(3) for _, head in shards.heads(0, bucket).items())

    before = head_bytes()
    for _ in range(4):
        ledger.acker.extend(roots)
        ledger.pass_time(TICK_MS)
    assert (before, head_bytes()) == (8, 12)


def test_a_root_lives_as_long_as_it_is_extended(ledger: Ledger) -> None:
    roots, edges = ledger.start(20)
    for _ in range(12):
        assert ledger.acker.extend(roots[5]) == 1
        ledger.pass_time(TICK_MS)
    assert ledger.failed() == as_ints(np.delete(roots, 5))
    assert ledger.acker.ack(roots[5], edges[5]).completed == 1
    assert ledger.completed() == [int(roots[5])]


def test_an_extended_root_has_the_whole_timeout_again(ledger: Ledger) -> None:
    root, _ = ledger.start_one()
    ledger.pass_time(TICK_MS + 7)
    ledger.acker.extend(root)
    extended_at = ledger.clock.now_ms
    turn_until_expired(ledger)
    assert TIMEOUT_MS <= ledger.clock.now_ms - extended_at <= 2 * TIMEOUT_MS
    [failure] = ledger.failures()
    assert TIMEOUT_MS <= failure.age_ms - TICK_MS - 7 <= TIMEOUT_MS + TICK_MS


def test_extend_saves_a_root_that_is_expired_but_not_drained(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1)
    roots, edges = ledger.start(12)
    ledger.expire_undrained()
    assert ledger.acker.extend(roots[4:6]) == 2
    assert ledger.rotator.drain(0)[0] == 10
    assert ledger.acker.ack(roots[4], edges[4]).completed == 1
    assert [ledger.pass_time(TICK_MS).expired for _ in range(3)] == [0, 0, 1]


def test_extend_counts_pending_roots_only(ledger: Ledger) -> None:
    roots, edges = ledger.start(5)
    ledger.acker.ack(roots[:2], edges[:2])
    orphans = ledger.acker.allocate(SPOUT, 5)
    ledger.acker.ack(orphans, new_edges(5))
    assert ledger.acker.extend(np.concatenate((roots, orphans, ledger.acker.allocate(SPOUT, 5)))) == 3
    ledger.acker.ack(roots, edges)
    assert ledger.acker.extend(roots) == 0


def test_roots_that_finished_stay_finished_when_their_block_is_filed_again(ledger: Ledger) -> None:
    roots, edges = ledger.start(20, message_ids=[f"{i}" * (i % 3 + 1) for i in range(20)])
    ledger.acker.ack(roots[:5], edges[:5])
    ledger.pass_time(TICK_MS)
    ledger.acker.extend(roots)
    for _ in range(2):
        assert ledger.pass_time(TICK_MS).expired == 0
    acks = ledger.acker.ack(roots, edges)
    assert (acks.completed, acks.late) == (15, 5)
    assert ledger.completed() == as_ints(roots)


# -- acks and the clock --------------------------------------------------------------------------------------------


def test_acks_do_not_restart_the_clock(ledger: Ledger) -> None:
    for touched in (1, 20):
        roots, _ = ledger.start(20)
        for expired in (0, 0, 20):
            ledger.acker.ack(roots[:touched], new_edges(touched))
            assert ledger.pass_time(TICK_MS).expired == expired


@pytest.mark.parametrize("touched", [1, 15])
def test_acks_restart_the_clock_of_their_roots_when_the_namespace_says_so(
    open_ledger: OpenLedger, touched: int
) -> None:
    """One root goes as a pair, fifteen as a vector."""
    ledger = open_ledger(ack_restarts_clock=True)
    roots, _ = ledger.start(20)
    ledger.pass_time(TICK_MS)
    ledger.acker.ack(roots[:touched], new_edges(touched))
    assert [ledger.pass_time(TICK_MS).expired for _ in range(3)] == [0, 20 - touched, touched]
    assert ledger.failed() == as_ints(roots)


def test_a_duplicate_ack_does_not_restart_the_clock(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(ack_restarts_clock=True)
    root, _ = ledger.start_one()
    edge = new_edge()
    ledger.acker.ack(root, edge, token="batch")
    for expired in (0, 0, 1):
        ledger.acker.ack(root, edge, token="batch")
        assert ledger.pass_time(TICK_MS).expired == expired
