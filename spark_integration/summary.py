"""What became of the messages of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redis_acker.message_ids import MessageId

SHOWN_FAILURES = 5


@dataclass(frozen=True)
class FailedMessage:
    """A message that failed in a run: which, where and why."""

    message_id: MessageId
    spout: str
    root: int
    attempt: int
    reason: str
    step: str
    error: str
    dead: bool
    """It was given up: that was its last attempt."""

    def __str__(self) -> str:
        where = f" in {self.step}" if self.step else ""
        dead = ", given up" if self.dead else ""
        return f"{self.message_id!r} {self.reason}{where} (attempt {self.attempt}{dead}): {self.error}"


@dataclass(frozen=True)
class Summary:
    """The books of a run: tracked = completed + failed."""

    spouts: tuple[str, ...]
    tracked: int
    """Messages."""
    completed: int
    failures: tuple[FailedMessage, ...]
    seconds: float

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def unknown(self) -> int:
        """Messages that failed but whose failures somebody else has taken out of the store: there should be none."""
        return self.tracked - self.completed - self.failed

    @property
    def dead(self) -> int:
        """How many of the failed were given up. The others are tried again when they are in a later run."""
        return sum(failure.dead for failure in self.failures)

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.tracked / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        lines = [
            f"{', '.join(self.spouts)}: {self.tracked:,} messages in {self.seconds:.1f} s ({self.rate:,.0f}/s): "
            f"{self.completed:,} completed, {self.failed:,} failed ({self.dead:,} of them dead)"
        ]
        lines += [f"  {failure}" for failure in self.failures[:SHOWN_FAILURES]]
        if self.unknown:
            lines.append(f"  {self.unknown:,} more have failed, and their failures were taken by another reader")
        if self.failed > SHOWN_FAILURES:
            lines.append(f"  and {self.failed - SHOWN_FAILURES:,} more in .failures")
        return "\n".join(lines)


def join_rounds(rounds: Sequence[Summary]) -> Summary:
    """The books of a run and of the replays of what failed in it."""
    first, last = rounds[0], rounds[-1]
    given_up = [failure for one in rounds[:-1] for failure in one.failures if failure.dead]
    return Summary(
        first.spouts,
        first.tracked,
        sum(one.completed for one in rounds),
        (*given_up, *last.failures),
        sum(one.seconds for one in rounds),
    )
