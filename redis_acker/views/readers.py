"""Who reads the streams of final events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis_acker.outcomes import Kind
from redis_acker.transport import Command

if TYPE_CHECKING:
    from redis_acker.acker import Acker

KINDS: tuple[Kind, ...] = ("completions", "failures")


@dataclass(frozen=True)
class StreamView:
    """The completions or the failures of a spout, over all shards."""

    spout: str
    kind: Kind
    entries: int
    """Not released by a reader."""
    oldest_ms: int | None
    """Age of the oldest entry; None without entries."""
    idle_ms: int | None
    """Since a reader was last seen; None if there is none."""


def read_streams(acker: Acker) -> list[StreamView]:
    """The streams of every spout. Looks for readers only where something waits for them."""
    return [_stream(acker, name, number, kind) for number, name in acker.spout_names().items() for kind in KINDS]


def _stream(acker: Acker, name: str, number: int, kind: Kind) -> StreamView:
    keys = [getattr(one, kind)(number) for one in acker.shard_keys]
    lengths: list[int] = acker.transport.run(Command(shard, ("XLEN", key)) for shard, key in enumerate(keys))
    ages: list[int] = []
    idles: list[int] = []
    for shard, key in enumerate(keys):
        if lengths[shard]:
            ages += _age_of_first(acker, shard, key)
            idles += _idle_times(acker, shard, key)
    return StreamView(name, kind, sum(lengths), max(ages, default=None), min(idles, default=None))


def _age_of_first(acker: Acker, shard: int, key: str) -> list[int]:
    first, now = acker.transport.run([Command(shard, ("XRANGE", key, "-", "+", "COUNT", 1)), Command(shard, ("TIME",))])
    now_ms = int(now[0]) * 1000 + int(now[1]) // 1000
    return [max(0, now_ms - int(entry.partition(b"-")[0])) for entry, _ in first]


def _idle_times(acker: Acker, shard: int, key: str) -> list[int]:
    """Of every reader, since it last asked."""
    idles: list[int] = []
    for group in _dicts(acker.transport.run_one(Command(shard, ("XINFO", "GROUPS", key)))):
        consumers = _dicts(acker.transport.run_one(Command(shard, ("XINFO", "CONSUMERS", key, group[b"name"]))))
        idles += [int(consumer[b"idle"]) for consumer in consumers]
    return idles


def _dicts(reply: list[Any]) -> list[dict[bytes, Any]]:
    """Flat lists of RESP2, or maps of RESP3, as dicts."""
    return [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True)) for one in reply]
