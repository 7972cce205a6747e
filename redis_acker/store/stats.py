"""What was counted: by one call of an Acker, and in a namespace since it began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis_acker.store.hashes import number_of

if TYPE_CHECKING:
    from redis_acker.store.shards import Shards


# -- one call ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inits:
    """What an init did, in roots."""

    initialised: int
    completed: int
    """Complete at once, by acks that came before the init."""
    failed: int
    """Failed at once, by fails that came before the init."""
    duplicates: int
    """Initialised before, and left alone."""


@dataclass(frozen=True)
class Acks:
    """What a batch of acks did, in ack vals; completed counts roots."""

    applied: int
    completed: int
    late: int
    """For roots that were finished, or never existed."""
    duplicates: int
    """Recognised by their token as applied before."""


@dataclass(frozen=True)
class Fails:
    """What a fail did, in roots."""

    failed: int
    kept: int
    """Not initialised yet: they fail when the init comes."""
    late: int


# -- a namespace ---------------------------------------------------------------------------------------------------


LATENCY_BOUNDS_MS = (
    *(10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000),
    *(30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000),
)
"""As in lua/lib/latency.lua."""

FINAL = ("completed", "failed", "timeout")
"""The counters of final events, each for a spout."""


@dataclass(frozen=True)
class Latency:
    """How long the roots of a spout took from init to completion."""

    counts: tuple[int, ...]
    """Roots up to each of the bounds, and not up to the one before; the last are above all of them."""
    sum_ms: int

    @property
    def count(self) -> int:
        return sum(self.counts)

    def since(self, before: Latency) -> Latency:
        """What was added since an earlier reading; everything, if the counters were lost in between."""
        counts = tuple(new - old for new, old in zip(self.counts, before.counts, strict=True))
        return self if min(counts) < 0 else Latency(counts, self.sum_ms - before.sum_ms)

    def at_most_ms(self, share: float) -> int | None:
        """The bound below which at least this share of the roots were; None without roots, or above all bounds."""
        wanted, found = share * self.count, 0
        for bound_ms, count in zip(LATENCY_BOUNDS_MS, self.counts, strict=False):
            found += count
            if found and found >= wanted:
                return bound_ms
        return None


@dataclass(frozen=True)
class SpoutStats:
    """Roots of one spout since the namespace began."""

    name: str
    initialised: int
    completed: int
    failed: int
    timeout: int
    replayed: int
    """Initialised with an attempt that was not the first."""
    buried: int
    """Dead letters that were written."""

    @property
    def pending(self) -> int:
        return self.initialised - self.completed - self.failed - self.timeout


@dataclass(frozen=True)
class ShardStats:
    """One shard."""

    shard: int
    pending: int
    acked: int
    """Ack vals that were applied, folded per root."""
    late: int
    """Acks and fails of roots that were already finished."""
    duplicates: int
    """Ack vals and inits that were recognised as second deliveries."""
    orphans: int
    """Records that expired because their init never came."""
    tick: int
    waits: int
    """Rotations that were due but had to wait for the drain of the one before: timeouts came late."""
    late_ms: int
    """How late the rotations were, all together."""
    early_bytes: int
    """Kept for roots without an init: acks and fails that came early, or for roots that nobody initialises."""
    early_refused: int
    """Calls that were refused because too much of that was kept."""
    set_aside: int
    """Records that could not be read and were put into the quarantine."""


@dataclass(frozen=True)
class Stats:
    """The counters of a namespace."""

    spouts: list[SpoutStats]
    shards: list[ShardStats]
    latencies: dict[str, Latency]
    """By spout."""
    components: dict[str | None, int]
    """Roots that components failed; under None those of all components beyond the first hundred of a shard."""


def read_stats(shards: Shards) -> Stats:
    """As cheap with ten million roots pending as with one."""
    counters, ticks = shards.counted(), shards.ticks()

    def total(counter: str) -> int:
        return sum(number_of(counted.get(counter.encode())) for counted in counters)

    def latency(number: int) -> Latency:
        counts = tuple(total(f"latency:{number}:{bound}") for bound in (*LATENCY_BOUNDS_MS, "more"))
        return Latency(counts, total(f"latency_ms:{number}"))

    numbers = sorted(shards.spouts().items())
    events = ("initialised", *FINAL, "replayed", "buried")
    return Stats(
        [SpoutStats(name, *(total(f"{event}:{number}") for event in events)) for number, name in numbers],
        [_shard_stats(shard, {**counters[shard], b"tick": tick}) for shard, tick in enumerate(ticks)],
        {name: latency(number) for number, name in numbers},
        _components(counters),
    )


def _shard_stats(shard: int, counted: dict[bytes, Any]) -> ShardStats:
    pending = 0
    for name, value in counted.items():
        event, _, number = name.decode(errors="replace").partition(":")
        if number and (event == "initialised" or event in FINAL):
            pending += number_of(value) if event == "initialised" else -number_of(value)
    names = (b"acked", b"late", b"duplicates", b"orphans", b"tick", b"waits", b"late_ms")
    foreign = (b"early_bytes", b"early_refused", b"quarantined")
    return ShardStats(shard, pending, *(number_of(counted.get(name)) for name in (*names, *foreign)))


def _components(counters: list[dict[bytes, Any]]) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    for counted in counters:
        for name, value in counted.items():
            kind, _, component = name.partition(b":")
            if kind == b"component":
                key = component.decode(errors="replace")
                found[key] = found.get(key, 0) + number_of(value)
            elif kind == b"other_components":
                found[None] = found.get(None, 0) + number_of(value)
    return found
