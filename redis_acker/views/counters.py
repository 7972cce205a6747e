"""The counters of a namespace: the same work with one root pending or ten million."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis_acker.transport import Command

if TYPE_CHECKING:
    from redis_acker.acker import Acker


@dataclass(frozen=True)
class SpoutStats:
    """Roots of one spout since the namespace began."""

    name: str
    initialised: int
    completed: int
    failed: int
    timeout: int

    @property
    def pending(self) -> int:
        return self.initialised - self.completed - self.failed - self.timeout


@dataclass(frozen=True)
class ShardStats:
    """One shard."""

    shard: int
    pending: int
    late: int
    """Acks and fails for roots that were finished."""
    duplicates: int
    """Ack vals and inits recognised as second deliveries."""
    orphans: int
    """Records that expired because their init never came."""
    tick: int
    waits: int
    """Times a rotation was due but had to wait for the drain of the last one: timeouts came later than they should."""


@dataclass(frozen=True)
class Stats:
    """The counters of a namespace."""

    spouts: list[SpoutStats]
    shards: list[ShardStats]


def read_stats(acker: Acker) -> Stats:
    flats = acker.transport.run(Command(shard, ("HGETALL", keys.meta)) for shard, keys in enumerate(acker.shard_keys))
    metas = [{name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)} for flat in flats]

    def total(name: str, number: int) -> int:
        return sum(int(meta.get(f"{name}:{number}", 0)) for meta in metas)

    spouts = [
        SpoutStats(name, *(total(event, number) for event in ("initialised", "completed", "failed", "timeout")))
        for number, name in sorted(acker.spout_names().items())
    ]
    return Stats(spouts, [_shard_stats(shard, meta) for shard, meta in enumerate(metas)])


def _shard_stats(shard: int, meta: dict[str, Any]) -> ShardStats:
    pending = 0
    for name, value in meta.items():
        event, _, number = name.partition(":")
        if number:
            pending += int(value) if event == "initialised" else -int(value)
    rest = (int(meta.get(name, 0)) for name in ("late", "duplicates", "orphans", "tick", "waits"))
    return ShardStats(shard, pending, *rest)
