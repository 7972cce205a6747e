"""A whole namespace at one moment: what the command line shows and an exporter of metrics can read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis_acker.settings import StoredSettings
from redis_acker.transport import Command
from redis_acker.views.counters import ShardStats, SpoutStats, read_stats
from redis_acker.views.oldest import MOST_BLOCKS, read_oldest
from redis_acker.views.servers import ServerView, read_servers

if TYPE_CHECKING:
    from redis_acker.acker import Acker


@dataclass(frozen=True)
class SpoutView:
    """One spout."""

    stats: SpoutStats
    oldest_ms: int | None
    """Age of its oldest pending root; None without one, or not found within the bound of the search."""
    unread_completions: int
    """Entries in its completion streams that no reader has released. An entry holds up to thousands of roots."""
    unread_failures: int
    retries: int
    """Messages that failed and wait for their next attempt."""
    dead: int
    """Dead letters."""

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
    """Until the next rotation; negative when it is overdue."""
    expired_blocks: int
    """Blocks that are expired and wait for the drain."""

    @property
    def shard(self) -> int:
        return self.stats.shard


@dataclass(frozen=True)
class Overview:
    """A namespace at one moment."""

    namespace: str
    settings: StoredSettings
    spouts: list[SpoutView]
    shards: list[ShardView]
    servers: list[ServerView]
    is_oldest_exact: bool
    """False where so many blocks are pending that an older root may have been left out of the search."""
    taken_s: float
    """When, by this machine's monotonic clock: two overviews give rates."""

    @property
    def pending(self) -> int:
        return sum(one.stats.pending for one in self.spouts)

    @property
    def oldest_ms(self) -> int | None:
        return max((one.oldest_ms for one in self.shards if one.oldest_ms is not None), default=None)

    @property
    def overdue_ms(self) -> int:
        """How late the latest rotation of any shard is; 0 when none is."""
        return max(0, *(-one.due_in_ms for one in self.shards))


@dataclass(frozen=True)
class Rates:
    """Roots per second."""

    initialised: float
    completed: float
    failed: float
    timeout: float


def read_overview(acker: Acker, *, most_blocks: int = MOST_BLOCKS) -> Overview:
    """Reads counters, lengths and the oldest roots; most_blocks bounds the search for these in each shard."""
    stats = read_stats(acker)
    taken_s = time.monotonic()
    lengths = _lengths(acker, acker.spout_names())
    oldest = read_oldest(acker, stats, most_blocks=most_blocks)
    servers = read_servers(acker.servers, range(acker.settings.shards))
    address_of = {shard: server.address for server in servers for shard in server.shards}
    rotations = _rotations(acker)
    return Overview(
        acker.namespace,
        acker.settings,
        [SpoutView(one, oldest.of_spout(one.name), *lengths[one.name]) for one in stats.spouts],
        [
            ShardView(one, address_of[one.shard], oldest.of_shard(one.shard), *rotations[one.shard])
            for one in stats.shards
        ],
        servers,
        oldest.is_exact,
        taken_s,
    )


def rates(before: Overview, after: Overview) -> dict[str, Rates]:
    """What happened between two overviews, by spout. Counters that were lost in between count as nothing."""
    seconds = max(after.taken_s - before.taken_s, 1e-6)
    start = {one.name: one.stats for one in before.spouts}

    def rate(spout: SpoutView, event: str) -> float:
        old = getattr(start[spout.name], event) if spout.name in start else 0
        return float(max(0, getattr(spout.stats, event) - old) / seconds)

    events = ("initialised", "completed", "failed", "timeout")
    return {spout.name: Rates(*(rate(spout, event) for event in events)) for spout in after.spouts}


def _lengths(acker: Acker, names: dict[int, str]) -> dict[str, list[int]]:
    """For each spout: entries in completion and failure streams, messages to be retried, dead letters."""
    commands: list[Command] = []
    for number in names:
        for shard, keys in enumerate(acker.shard_keys):
            commands += [Command(shard, ("XLEN", key)) for key in (keys.completions(number), keys.failures(number))]
        first = acker.shard_keys[0]
        commands += [Command(0, ("HLEN", first.retries(number))), Command(0, ("HLEN", first.dead(number)))]
    replies = iter(acker.transport.run(commands))
    lengths: dict[str, list[int]] = {}
    for name in names.values():
        streams = [(next(replies), next(replies)) for _ in acker.shard_keys]
        completions, failures = map(sum, zip(*streams, strict=True))
        lengths[name] = [completions, failures, next(replies), next(replies)]
    return lengths


def _rotations(acker: Acker) -> list[tuple[int, int]]:
    """For each shard: ms until its rotation is due, and blocks that wait for the drain."""
    commands: list[Command] = []
    for shard, keys in enumerate(acker.shard_keys):
        commands += [
            Command(shard, ("HGET", keys.meta, "turned_ms")),
            Command(shard, ("TIME",)),
            Command(shard, ("HLEN", keys.expired_heads)),
        ]
    replies: list[Any] = acker.transport.run(commands)
    return [
        (due_in_ms(turned_ms, now, acker.settings.tick_ms), expired)
        for turned_ms, now, expired in zip(replies[::3], replies[1::3], replies[2::3], strict=True)
    ]


def due_in_ms(turned_ms: bytes | None, now: list[bytes], tick_ms: int) -> int:
    """Until the next rotation of a shard, by its server's clock; negative when it is overdue."""
    now_ms = int(now[0]) * 1000 + int(now[1]) // 1000
    return int(turned_ms or now_ms) + tick_ms - now_ms
