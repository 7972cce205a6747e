"""When roots expire, measured against the contract: between T and T + T / (buckets - 1) after their init."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from redis_acker import Acker, Rotator
from tests.backends import Backend
from tests.clock import Clock

TIMEOUT_MS = 1200
NUMBERS = count()

WAITS = st.lists(st.integers(1, 3000), min_size=1, max_size=8)
BUCKETS = st.sampled_from((2, 3, 4, 7))

quickly = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def opened(backend: Backend, namespace: str, buckets: int, clock: Clock) -> Acker:
    name = f"{namespace}-{next(NUMBERS)}"
    return Acker(backend.target, namespace=name, buckets=buckets, timeout_ms=TIMEOUT_MS, clock=clock, shards=1)


def expire_on_time(acker: Acker, clock: Clock, until_ms: int) -> list[tuple[int, int]]:
    """Rotates whenever it is due, as a rotator that is never late. Returns (root, time of its failure)."""
    rotator, found = Rotator(acker), []
    while True:
        due_in_ms = rotator.once().due_in_ms
        with acker.failures("s") as failures:
            found += [(int(root), outcome.at_ms) for outcome in failures.consume() for root in outcome.roots]
        if clock.now_ms + due_in_ms > until_ms:
            clock.now_ms = until_ms
            return found
        clock.advance(due_in_ms)


@pytest.mark.parametrize("backend", ["fake", "redis-7.0"], indirect=True)
@quickly
@given(waits=WAITS, buckets=BUCKETS, extended=st.integers(0, 7))
def test_a_root_expires_between_t_and_t_plus_a_tick_after_its_clock_was_started(
    backend: Backend, namespace: str, waits: list[int], buckets: int, extended: int
) -> None:
    clock = Clock()
    with opened(backend, namespace, buckets, clock) as acker:
        started: dict[int, int] = {}
        failed: list[tuple[int, int]] = []
        for wait_ms in waits:
            pair = acker.allocate("s", 2)
            acker.init(pair, [1, 2])
            started |= {int(root): clock.now_ms for root in pair}
            lucky = sorted(started)[min(extended, len(started) - 1)]
            if acker.extend(lucky):
                started[lucky] = clock.now_ms
            failed += expire_on_time(acker, clock, clock.now_ms + wait_ms)
        failed += expire_on_time(acker, clock, clock.now_ms + 2 * TIMEOUT_MS)
    assert sorted(root for root, _ in failed) == sorted(started)
    for root, at_ms in failed:
        assert TIMEOUT_MS <= at_ms - started[root] <= TIMEOUT_MS * (1 + 1 / (buckets - 1))


@pytest.mark.parametrize("backend", ["fake", "redis-7.0"], indirect=True)
@quickly
@given(waits=WAITS, buckets=BUCKETS, rotated=st.lists(st.booleans(), min_size=8, max_size=8))
def test_no_root_expires_early_after_a_time_without_rotator(
    backend: Backend, namespace: str, waits: list[int], buckets: int, rotated: list[bool]
) -> None:
    clock = Clock()
    with opened(backend, namespace, buckets, clock) as acker, acker.failures("s") as failures:
        rotator = Rotator(acker)
        ages = []
        for wait_ms, is_rotated in zip(waits, rotated, strict=False):
            acker.init(acker.allocate("s", 1), [1])
            clock.advance(5 * wait_ms)
            acker.init(acker.allocate("s", 1), [1])
            if is_rotated:
                rotator.once()
        clock.advance(2 * TIMEOUT_MS)
        rotator.once()
        clock.advance(2 * TIMEOUT_MS)
        rotator.once()
        for outcome in failures.consume():
            ages += outcome.ages_ms
    assert len(ages) == 2 * len(waits)
    assert min(ages) >= TIMEOUT_MS


def test_an_idle_store_expires_what_it_holds(backend: Backend, namespace: str) -> None:
    clock = Clock()
    with opened(backend, namespace, 3, clock) as acker, acker.failures("s") as failures:
        roots = acker.allocate("s", 12)
        acker.init(roots, [7] * 12, message_ids=range(12))
        failed = expire_on_time(acker, clock, clock.now_ms + 2 * TIMEOUT_MS)
        assert [root for root, _ in failed] == roots.tolist()
        assert failures.read() == []
