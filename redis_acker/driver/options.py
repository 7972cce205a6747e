"""The options of drivers, which the runners of topologies take too."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, TypedDict

from redis_acker.clock import SYSTEM_CLOCK, Clock
from redis_acker.driver.observer import Observer
from redis_acker.errors import BadInput
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.acker import Acker

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_MAX_PENDING = 10_000
"""Most roots a spout task has unfinished at once."""

OWN_TIMEOUT_FACTOR = 3
"""A root of which the store says nothing for this many timeouts has been lost by it, and has failed."""


class DriverOptions(TypedDict, total=False):
    """What LocalRunner and SparkRunner hand to every SpoutDriver they start."""

    max_pending: int
    """Most roots that each spout task has unfinished at once; DEFAULT_MAX_PENDING if not given."""
    retries: RetryPolicy | None
    """How often and when a message that failed is tried again; None: RetryPolicy()."""
    own_timeout_ms: int | None
    """How long a driver waits for news of a root before it takes it for lost; None: OWN_TIMEOUT_FACTOR timeouts."""
    observer: Observer | None
    """Is told what happens to messages."""
    clock: Clock | None
    """By which everything waits; None: the clock of the acker."""
    wait_for_lease: bool
    """Whether a driver waits while another drives its spout. By default it raises SpoutTaken."""
    lease_ms: int
    """How long after its last sign of life another driver may take over; LEASE_MS if not given."""


def check_options(**options: Unpack[DriverOptions]) -> None:
    """Raises BadInput for what no driver can work with."""
    for name in ("max_pending", "lease_ms", "own_timeout_ms"):
        number = options.get(name)
        if number is None and name == "own_timeout_ms":
            continue
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise BadInput(f"{name} must be a whole number from 1, not {number!r}.")
    retries, observer = options.get("retries"), options.get("observer")
    if not isinstance(retries, (RetryPolicy, NoneType)) or not isinstance(observer, (Observer, NoneType)):
        raise BadInput(f"retries is a RetryPolicy and observer an Observer, not {retries!r} and {observer!r}.")


def clock_of(acker: Acker | None, clock: Clock | None) -> Clock:
    """The clock of a run: the one it was given, or else that of its acker."""
    return clock or (acker.clock if acker else SYSTEM_CLOCK)
