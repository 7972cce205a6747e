"""The streams of final events, and whether anybody reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    for shard, keys in enumerate(acker.shards.keys):
        if lengths[shard]:
            key = keys.stream(kind, number)
            ages += _age_of_first(acker, shard, key)
            idles += _idle_times(acker, shard, key)
    return StreamView(name, kind, sum(lengths), max(ages, default=None), min(idles, default=None))


def _age_of_first(acker: Acker, shard: int, key: str) -> list[int]:
    first = acker.shards.ask(shard, "XRANGE", key, "-", "+", "COUNT", 1)
    now_ms = acker.shards.time_ms(shard)
    return [max(0, now_ms - int(entry.partition(b"-")[0])) for entry, _ in first]


def _idle_times(acker: Acker, shard: int, key: str) -> list[int]:
    """For every reader, the time since it last asked."""
    idles: list[int] = []
    for group in _dicts(acker.shards.ask(shard, "XINFO", "GROUPS", key)):
        consumers = _dicts(acker.shards.ask(shard, "XINFO", "CONSUMERS", key, group[b"name"]))
        idles += [int(consumer[b"idle"]) for consumer in consumers]
    return idles


def _dicts(reply: list[Any]) -> list[dict[bytes, Any]]:
    """Flat lists of RESP2, or maps of RESP3, as dicts."""
    return [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True)) for one in reply]
