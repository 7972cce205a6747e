"""What comes before the init: kept in few bytes, and not without end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redis_acker import new_edges
from redis_acker.errors import EarlyLimit
from redis_acker.store.ids import U64Array
from tests.lua.conftest import OpenLedger
from tests.lua.ledger import SPOUT, TICK_MS, Ledger

MOST_BYTES = 64 * 1024 * 1024
"""That a namespace keeps for roots without an init."""


def stored_bytes(ledger: Ledger) -> int:
    """Of heads and ack vals, in all buckets."""
    client: Any = ledger.backend.client()
    found = [key for key in ledger.backend.keys(ledger.acker.namespace) if b"}:heads:" in key or b"}:vals:" in key]
    return sum(len(value) for key in found for value in client.hvals(key))


def strangers(ledger: Ledger, count: int, index: int) -> U64Array:
    """Roots of this index in blocks that nobody initialises."""
    size = ledger.acker.settings.block_size
    roots: U64Array = ledger.acker.allocate(SPOUT, count * size)[::size] + np.uint64(index)
    return roots


def test_an_early_ack_at_the_end_of_a_block_takes_no_vector(ledger: Ledger) -> None:
    roots = strangers(ledger, 50, 499)
    assert ledger.acker.ack(roots, new_edges(50)).applied == 50
    assert stored_bytes(ledger) < 50 * 50
    assert ledger.acker.inspect(int(roots[0])).state == "orphan"


@pytest.mark.parametrize("few", [[0], [499], [0, 499], [3, 4, 5, 250], list(range(12)), list(range(0, 500, 7))])
def test_early_acks_count_when_the_init_comes_however_they_were_kept(ledger: Ledger, few: list[int]) -> None:
    roots, edges = ledger.acker.allocate(SPOUT, 500), new_edges(500)
    early = new_edges(500)
    for part in (few, few[::2], few[-1:]):  # more than once for some
        ledger.acker.ack(roots[part], early[part])
    for index in few:
        times = 1 + (index in few[::2]) + (index == few[-1])
        assert ledger.acker.inspect(int(roots[index])).ack_val == (int(early[index]) if times % 2 else 0)
    val = [int(early[i]) * ((1 + (i in few[::2]) + (i == few[-1])) % 2) if i in few else 0 for i in range(500)]
    missing = edges ^ np.array(val, dtype=np.uint64)
    assert ledger.acker.init(roots, edges).completed == 0
    assert ledger.acker.ack(roots, missing).completed == 500
    assert ledger.completed() == roots.tolist()
    assert ledger.count("early_bytes") == 0


def test_roots_that_no_block_can_have_are_late_and_not_kept(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(block_size=10)
    roots, edges = ledger.acker.allocate(SPOUT, 10), new_edges(10)
    beyond = roots[0] + np.arange(10, 40, dtype=np.uint64)
    assert ledger.acker.ack(beyond, new_edges(30)).late == 30
    assert ledger.acker.ack(beyond[-1:], new_edges(1)).late == 1
    assert ledger.acker.fail(beyond[:3]).late == 3
    assert stored_bytes(ledger) == 0
    both = np.concatenate((roots[:9], beyond))
    done = ledger.acker.ack(both, new_edges(39))
    assert (done.applied, done.late) == (9, 30)
    assert (fails := ledger.acker.fail(both[5:12])).kept == 4
    assert fails.late == 3
    assert ledger.acker.init(roots, edges).failed == 4
    assert ledger.count("late") == 30 + 1 + 3 + 30 + 3


def test_what_is_kept_for_roots_without_an_init_is_counted_until_they_expire(ledger: Ledger) -> None:
    ledger.acker.ack(strangers(ledger, 30, 400), new_edges(30))
    ledger.acker.fail(strangers(ledger, 30, 400), component="parse", error="broken")
    dense = ledger.acker.allocate(SPOUT, 500)
    ledger.acker.ack(dense, new_edges(500))
    kept = ledger.count("early_bytes")
    assert stored_bytes(ledger) < kept < stored_bytes(ledger) + 61 * 200
    ledger.pass_time(TICK_MS)
    ledger.acker.ack(dense[:3], new_edges(3))  # moves to the nursery
    assert ledger.count("early_bytes") == kept
    for _ in range(4):
        ledger.pass_time(TICK_MS)
    assert (ledger.count("early_bytes"), ledger.count("orphans")) == (0, 61)


def test_past_the_limit_acks_and_fails_without_an_init_are_refused_and_all_others_go_on(
    open_ledger: OpenLedger,
) -> None:
    ledger = open_ledger(shards=1)
    roots, edges = ledger.start(20)
    early, early_edges = ledger.acker.allocate(SPOUT, 20), new_edges(20)
    ledger.acker.ack(early, early_edges)
    meta: Any = ledger.acker.shards.keys[0].counters
    kept = ledger.count("early_bytes")
    ledger.acker.shards.ask(0, "HINCRBY", meta, "early_bytes", MOST_BYTES - kept)
    before = ledger.stored()
    stranger = strangers(ledger, 1, 7)
    with pytest.raises(EarlyLimit, match=f"no more than {MOST_BYTES} bytes") as refused:
        ledger.acker.ack(np.concatenate((roots[:1], stranger)), np.concatenate((edges[:1], new_edges(1))))
    assert refused.value.token is not None
    with pytest.raises(EarlyLimit):
        ledger.acker.fail(stranger)
    after = ledger.stored()
    assert int(after[meta.encode()].pop(b"early_refused")) == 2
    assert after == before
    assert ledger.acker.ack(roots, edges).completed == 20
    assert ledger.acker.init(early, early_edges).completed == 20
    assert ledger.acker.ack(stranger, new_edges(1)).applied == 1
    ledger.acker.shards.ask(0, "HINCRBY", meta, "early_bytes", kept - MOST_BYTES)


def test_what_another_program_removed_does_not_count_for_ever(open_ledger: OpenLedger) -> None:
    ledger = open_ledger(shards=1)
    ledger.acker.ack(strangers(ledger, 3, 7), new_edges(3))
    ledger.acker.shards.heads(0, 0).delete()
    assert ledger.count("early_bytes") > 0
    ledger.pass_time(TICK_MS)
    assert ledger.count("early_bytes") == 0
