"""A whole namespace at one moment: what the command line shows, and a metrics exporter can read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redis_acker.errors import UnknownNamespace, Unreadable
from redis_acker.store.heads import read_head
from redis_acker.store.ids import spout_of
from redis_acker.store.namespace import StoredSettings
from redis_acker.store.packed import age_ms
from redis_acker.store.spout_states import SpoutState, SpoutStates
from redis_acker.store.stats import Latency, ShardStats, SpoutStats, Stats, read_stats
from redis_acker.store.tracked_streams import TrackedStreams
from redis_acker.views.servers import ServerView, read_servers

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

MOST_BLOCKS = 20_000
"""How many blocks of a shard to search: enough for 10 million roots in blocks of the default size."""

_AT_ONCE = 200
"""Blocks read by one command, so that none holds up the server."""


@dataclass(frozen=True)
class SpoutView:
    """One spout."""

    stats: SpoutStats
    latency: Latency
    oldest_ms: int | None
    """Age of its oldest pending root; None if there is none, or the bounded search did not find it."""
    unread_completions: int
    """Entries in its completion streams that no reader has released. An entry holds up to thousands of roots."""
    unread_failures: int
    retries: int
    """Messages in its retry book: they have failed, and are neither complete nor dead. Their next attempt may be in
    work."""
    dead: int
    """Dead letters."""
    driver: str | None
    """Who holds its lease: a driver, or a drain by hand. None if nobody does."""
    lease_ms: int
    """Time until that lease ends, unless it is renewed; 0 without a lease."""
    run_roots: int | None
    """Roots of the Spark run in progress; None if there is none."""
    paused_ms: int | None
    """Since when it is paused, by the server's clock; None if it is not."""
    lag: int | None
    """Messages that wait in its source; None if nobody drives it, or its driver cannot tell."""
    micro_batches: int | None
    """Those that its tracked stream has finished; None if it has none."""

    @property
    def name(self) -> str:
        return self.stats.name


@dataclass(frozen=True)
class ShardView:
    """One shard."""

    stats: ShardStats
    server: str
    oldest_ms: int | None
    due_in_ms: int
    """Time until the next rotation; negative when it is overdue."""
    blocks: tuple[int, ...]
    """Blocks in each bucket, orphans too, from the nursery on; the last have expired and wait for the drain."""
    oldest_at_most_ms: int
    """A bound for the time that the clock of any pending root has run, known at constant cost; 0 if none is pending."""
    quarantined: int
    """Records that could not be read and are in the quarantine."""

    @property
    def shard(self) -> int:
        return self.stats.shard

    @property
    def expired_blocks(self) -> int:
        return self.blocks[-1]


@dataclass(frozen=True)
class Overview:
    """A namespace at one moment."""

    namespace: str
    settings: StoredSettings
    spouts: list[SpoutView]
    shards: list[ShardView]
    servers: list[ServerView]
    components: dict[str | None, int]
    """Roots that components failed; under None those of all components beyond the first hundred of a shard."""
    is_oldest_exact: bool
    """False if so many blocks are pending that the search may have missed an older root."""
    taken_s: float
    """When it was read, by this machine's monotonic clock: two overviews give rates."""

    @property
    def pending(self) -> int:
        return sum(one.stats.pending for one in self.spouts)

    @property
    def oldest_ms(self) -> int | None:
        return max((one.oldest_ms for one in self.shards if one.oldest_ms is not None), default=None)

    @property
    def quarantined(self) -> int:
        return sum(one.quarantined for one in self.shards)

    @property
    def overdue_ms(self) -> int:
        """How late the most overdue rotation is; 0 when none is late."""
        return max(0, *(-one.due_in_ms for one in self.shards))


@dataclass(frozen=True)
class Rates:
    """Roots per second."""

    initialised: float
    completed: float
    failed: float
    timeout: float


def read_overview(acker: Acker, *, most_blocks: int = MOST_BLOCKS) -> Overview:
    """Reads counters, lengths and the oldest roots. most_blocks bounds the search for the oldest in each shard; with 0
    there is none, and the cost does not depend on how many roots are pending. Raises UnknownNamespace if the servers
    have lost it: zeros would look like a quiet day."""
    stats = read_stats(acker.shards)
    taken_s = time.monotonic()
    spouts = _spouts(acker, acker.known_spouts())
    oldest = read_oldest(acker, stats, most_blocks=most_blocks)
    servers = read_servers(acker.servers, range(acker.settings.shards))
    address_of = {shard: server.address for server in servers for shard in server.shards}
    buckets = _buckets(acker, stats)
    return Overview(
        acker.namespace,
        acker.settings,
        [
            SpoutView(one, stats.latencies[one.name], oldest.of_spout(one.name), *spouts[one.name])
            for one in stats.spouts
        ],
        [
            ShardView(one, address_of[one.shard], oldest.of_shard(one.shard), *buckets[one.shard])
            for one in stats.shards
        ],
        servers,
        stats.components,
        oldest.is_exact,
        taken_s,
    )


def rates(before: Overview, after: Overview) -> dict[str, Rates]:
    """What happened between two overviews, by spout. Counters that were lost in between give a rate of zero."""
    seconds = max(after.taken_s - before.taken_s, 1e-6)
    start = {one.name: one.stats for one in before.spouts}

    def rate(spout: SpoutView, event: str) -> float:
        old = getattr(start[spout.name], event) if spout.name in start else 0
        return float(max(0, getattr(spout.stats, event) - old) / seconds)

    events = ("initialised", "completed", "failed", "timeout")
    return {spout.name: Rates(*(rate(spout, event) for event in events)) for spout in after.spouts}


def _spouts(
    acker: Acker, numbers: dict[str, int]
) -> dict[str, tuple[int, int, int, int, str | None, int, int | None, int | None, int | None, int | None]]:
    """Of each spout: entries in its completion and failure streams, messages in its retry book, dead letters, who
    drives it, for how many ms more, the roots of its Spark run, since when it is paused, its lag, its micro-batches."""
    shards, batches = acker.shards, TrackedStreams(acker).batches()
    found, states = {}, SpoutStates(shards).all()
    for (name, number), facts in zip(numbers.items(), shards.facts(list(numbers.values())), strict=True):
        driver = None if facts.holder is None else facts.holder.decode(errors="replace")
        lease_ms = max(0, facts.lease_ms) if driver else 0
        numbers_of_run = [] if facts.run is None else facts.run[:100].split()  # first sequence, count, block size
        run_roots = int(numbers_of_run[1]) if len(numbers_of_run) == 3 and numbers_of_run[1].isdigit() else None
        state = states.get(number, SpoutState())
        lag = state.lag if driver else None
        counts = (facts.completions, facts.failures, facts.retries, facts.dead)
        found[name] = (*counts, driver, lease_ms, run_roots, state.paused_ms, lag, batches.get(name))
    return found


def _buckets(acker: Acker, stats: Stats) -> list[tuple[int, tuple[int, ...], int, int]]:
    """For each shard: ms until its rotation is due, the sizes of its buckets, a bound for the age of its oldest, the
    size of its quarantine."""
    tick_ms = acker.settings.tick_ms
    turned, times, aside = acker.shards.turned_ms(), acker.shards.times_ms(), acker.shards.quarantine_sizes()
    if not any(turned):
        raise UnknownNamespace(f"Namespace {acker.namespace!r} does not exist any more: its servers lost their data.")
    sizes = [acker.shards.bucket_sizes(bucket) for bucket in range(acker.settings.buckets + 1)]
    found = []
    for shard, turned_ms, now_ms, quarantined, *blocks in zip(stats.shards, turned, times, aside, *sizes, strict=True):
        since_ms = now_ms - (turned_ms or now_ms)
        filled = [bucket for bucket, size in enumerate(blocks) if size and shard.pending > 0]  # else they are orphans
        oldest = max(filled, default=None)
        # What is in bucket b now was in the nursery at most b ticks before the last rotation.
        at_most_ms = 0 if oldest is None else max(0, since_ms) + oldest * tick_ms
        found.append((tick_ms - since_ms, tuple(blocks), at_most_ms, quarantined))
    return found


# -- the oldest pending roots ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Oldest:
    """Ages in ms of the oldest pending roots found, by shard and spout name."""

    ages: dict[tuple[int, str], int]
    is_exact: bool

    def of_shard(self, shard: int) -> int | None:
        return max((age for (one, _), age in self.ages.items() if one == shard), default=None)

    def of_spout(self, spout: str) -> int | None:
        return max((age for (_, one), age in self.ages.items() if one == spout), default=None)


def read_oldest(acker: Acker, stats: Stats, *, most_blocks: int = MOST_BLOCKS) -> Oldest:
    """Searches the buckets of each shard, oldest first.

    Stops in a shard once it has found a root of every spout with pending roots, so it may miss an older root that was
    extended into a younger bucket. While a rotation renames buckets, it may miss one of them.
    """
    if most_blocks <= 0:
        return Oldest({}, is_exact=all(one.pending <= 0 for one in stats.shards))
    names = acker.spout_names()
    wanted = {one.name for one in stats.spouts if one.pending > 0}
    ages: dict[tuple[int, str], int] = {}
    is_exact = True
    for shard in range(acker.settings.shards):
        if stats.shards[shard].pending <= 0:
            continue
        left = most_blocks
        for bucket in reversed(range(acker.settings.buckets + 1)):
            for block, age in _ages(acker, shard, bucket):
                if age is not None:
                    name = names.get(spout_of(int.from_bytes(block, "big")), "?")
                    ages[shard, name] = max(age, ages.get((shard, name), 0))
                left -= 1
                if left <= 0:
                    break
            if left <= 0 or wanted <= {name for one, name in ages if one == shard}:
                break
        is_exact = is_exact and left > 0
    return Oldest(ages, is_exact)


def _ages(acker: Acker, shard: int, bucket: int) -> Iterator[tuple[bytes, int | None]]:
    """The blocks of a bucket; age None where nothing is pending."""
    for page in acker.shards.heads(shard, bucket).pages(_AT_ONCE):
        now_ms = acker.shards.time_ms(shard)
        for block, packed in page:
            try:
                head = read_head(packed)
            except Unreadable:
                continue  # the rotator sets it aside
            yield block, age_ms(now_ms, head.birth) if head.initialised and head.live else None
