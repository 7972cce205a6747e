"""How long a failed message waits for its next attempt."""

from __future__ import annotations

from typing import Any

import pytest

from redis_acker import RetryPolicy
from redis_acker.errors import BadInput
from redis_acker.store.message_ids import MAX_ATTEMPT


def test_pauses_double_up_to_the_longest() -> None:
    policy = RetryPolicy(max_attempts=10, first_ms=100, longest_ms=1_000, jitter=0)
    assert [policy.pause_ms(attempt) for attempt in range(1, 7)] == [100, 200, 400, 800, 1_000, 1_000]
    assert policy.pause_ms(MAX_ATTEMPT) == 1_000


def test_jitter_takes_away_at_most_its_share_of_a_pause() -> None:
    policy = RetryPolicy(first_ms=10_000, jitter=0.3)
    pauses = {policy.pause_ms(1) for _ in range(200)}
    assert min(pauses) >= 7_000
    assert max(pauses) <= 10_000
    assert len(pauses) > 100


@pytest.mark.parametrize(
    "bad",
    [
        {"max_attempts": 0},
        {"max_attempts": MAX_ATTEMPT + 1},
        {"max_attempts": "three"},
        {"first_ms": -1},
        {"first_ms": None},
        {"longest_ms": -1},
        {"jitter": 2},
        {"jitter": "a bit"},
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=str(next(iter(bad.values())))):
        RetryPolicy(**bad)
