"""The streams of final events, and whether anybody reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redis_acker.store.streams import Kind

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

KINDS: tuple[Kind, ...] = ("completions", "failures")


@dataclass(frozen=True)
class StreamView:
    """The completions or the failures of a spout, over all shards."""

    spout: str
    kind: Kind
    entries: int
    """Those that no reader has released."""
    oldest_ms: int | None
    """Age of the oldest entry; None without entries."""
    idle_ms: int | None
    """Time since a reader last asked; None if there is no reader."""


def read_streams(acker: Acker) -> list[StreamView]:
    """The streams of every spout. Looks for readers only where entries wait."""
    return [_stream(acker, name, number, kind) for number, name in acker.spout_names().items() for kind in KINDS]


def _stream(acker: Acker, name: str, number: int, kind: Kind) -> StreamView:
    lengths = acker.shards.unread(kind, number)
    ages: list[int] = []
    idles: list[int] = []
    for shard, length in enumerate(lengths):
        first_ms = acker.shards.first_entry_ms(kind, number, shard) if length else None
        if first_ms is not None:
            ages.append(max(0, acker.shards.time_ms(shard) - first_ms))
            idles += acker.shards.readers_idle_ms(kind, number, shard)
    return StreamView(name, kind, sum(lengths), max(ages, default=None), min(idles, default=None))
