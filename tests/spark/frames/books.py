"""What the store says about a spout."""

from redis_acker import Acker


def books(acker: Acker, spout: str = "numbers") -> tuple[int, int, int, int]:
    """Roots of a spout so far: initialised, completed, failed or timed out, pending."""
    [found] = [one for one in acker.stats().spouts if one.name == spout]
    return found.initialised, found.completed, found.failed + found.timeout, found.pending
