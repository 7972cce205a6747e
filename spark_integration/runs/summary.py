"""What became of the messages of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redis_acker.store.message_ids import MessageId

SHOWN_FAILURES = 5


@dataclass(frozen=True)
class FailedMessage:
    """A message that failed in a run: which, where and why."""

    message_id: MessageId | None
    """None in a job over rows of another application: the spout that knows it is that one's."""
    spout: str
    """Or, in a job over rows of another application, the name of the job."""
    root: int
    attempt: int
    reason: str
    step: str
    error: str
    dead: bool
    """Whether it was given up, because that was its last attempt."""
    is_attempt: bool = True
    """False for a timeout after a server was restarted or replaced: it may have lost acks."""

    def __str__(self) -> str:
        where = f" in {self.step}" if self.step else ""
        dead = ", given up" if self.dead else "" if self.is_attempt else ", which does not count"
        message = f"root 0x{self.root:016x}" if self.message_id is None else repr(self.message_id)
        return f"{message} {self.reason}{where} (attempt {self.attempt}{dead}): {self.error}"


@dataclass(frozen=True)
class Summary:
    """The outcome of a run: tracked = completed + handed_over + failed."""

    spouts: tuple[str, ...]
    """For a job over rows of another application, its name."""
    tracked: int
    """Messages; in a job over rows of another application, rows."""
    completed: int
    dead: int
    """How many of the failed messages were given up. A later run that has the others tries them again."""
    failures: tuple[FailedMessage, ...]
    """If there are very many, only the first."""
    seconds: float
    completed_before: int = 0
    """How many were completed by the run that died and that this one continued. In a job over rows of another
    application: how many were done before, came twice, or are of messages that are over."""
    handed_over: int = 0
    """How many wait for the application that their rows were handed over to."""

    @classmethod
    def of_inputs(cls, parts: Sequence[Summary]) -> Summary:
        """The outcome of a job with several inputs, each of which has its own."""
        return cls(
            tuple(spout for one in parts for spout in one.spouts),
            sum(one.tracked for one in parts),
            sum(one.completed for one in parts),
            sum(one.dead for one in parts),
            tuple(failure for one in parts for failure in one.failures),
            max(one.seconds for one in parts),
            sum(one.completed_before for one in parts),
        )

    @property
    def failed(self) -> int:
        return self.tracked - self.completed - self.handed_over

    @property
    def rate(self) -> float:
        """Messages per second."""
        return (self.tracked - self.completed_before) / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        before = f" ({self.completed_before:,} of them by an earlier run)" if self.completed_before else ""
        handed = f", {self.handed_over:,} handed over" if self.handed_over else ""
        lines = [
            f"{', '.join(self.spouts)}: {self.tracked:,} messages in {self.seconds:.1f} s ({self.rate:,.0f}/s): "
            f"{self.completed:,} completed{before}{handed}, {self.failed:,} failed ({self.dead:,} of them dead)"
        ]
        lines += [f"  {failure}" for failure in self.failures[:SHOWN_FAILURES]]
        if len(self.failures) > SHOWN_FAILURES:
            lines.append(f"  and {len(self.failures) - SHOWN_FAILURES:,} more in .failures")
        if (unlisted := self.failed - len(self.failures)) > 0:
            lines.append(
                f"  and {unlisted:,} that are not listed: `redis-acker stats` and `redis-acker dead list` know"
            )
        return "\n".join(lines)
