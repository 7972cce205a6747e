"""How often a failed message is tried again, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass

from redis_acker.errors import BadInput
from redis_acker.store.message_ids import MAX_ATTEMPT


@dataclass(frozen=True)
class RetryPolicy:
    """How often a failed message is tried again, and when."""

    max_attempts: int = 5
    first_ms: int = 1_000
    """Pause before the second attempt. It doubles with every attempt, up to longest_ms."""
    longest_ms: int = 60_000
    jitter: float = 0.2
    """Random share of the pause, so that messages that failed together do not come back together."""

    def __post_init__(self) -> None:
        whole = (self.max_attempts, self.first_ms, self.longest_ms)
        is_right = all(type(one) is int for one in whole) and min(self.first_ms, self.longest_ms) >= 0
        if not (is_right and 1 <= self.max_attempts <= MAX_ATTEMPT):
            raise BadInput(f"A retry policy has max_attempts from 1 to {MAX_ATTEMPT} and pauses from 0 ms, not {self}.")
        if not isinstance(self.jitter, (int, float)) or not 0 <= self.jitter <= 1:
            raise BadInput(f"The jitter of a retry policy is a share from 0 to 1, not {self.jitter!r}.")

    def pause_ms(self, attempt: int) -> int:
        """The pause after a failed attempt."""
        pause = min(self.longest_ms, self.first_ms * 2 ** min(attempt - 1, 62))
        return int(pause * (1 - self.jitter * random.random()))
