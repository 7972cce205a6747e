"""What a run under faults came to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Verdict:
    """Counts of a run. Everything in `wrong` must be 0."""

    carried: int = 0
    """Messages or roots."""
    replays: int = 0
    """Attempts after the first, and roots that timed out."""
    stall_s: float = 0.0
    """The longest time in which nothing was done."""
    wrong: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("lost", "false", "stuck", "twice", "denied", "innocents"), 0)
    )
    """lost: without a final event; false: completed before all was done; stuck: still pending at the end; twice: two
    final events; denied: timed out though all was acked in time; innocents: buried though nothing ailed them."""

    @property
    def is_good(self) -> bool:
        return self.carried > 0 and not any(self.wrong.values())
