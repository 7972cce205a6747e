"""The oldest pending root of each spout and shard, by a bounded search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redis_acker.ids import spout_of
from redis_acker.outcomes import age_ms
from redis_acker.transport import Command
from redis_acker.views.counters import Stats
from redis_acker.views.heads import read_head

if TYPE_CHECKING:
    from redis_acker.acker import Acker

MOST_BLOCKS = 20_000
"""Blocks looked at in a shard, enough for 10 million roots in blocks of the default size."""

_AT_ONCE = 200
"""Blocks looked at by one command: so that none of them holds up the server."""


@dataclass(frozen=True)
class Oldest:
    """Ages in ms of the oldest pending roots that were found, by shard and name of the spout."""

    ages: dict[tuple[int, str], int]
    is_exact: bool

    def of_shard(self, shard: int) -> int | None:
        return max((age for (one, _), age in self.ages.items() if one == shard), default=None)

    def of_spout(self, spout: str) -> int | None:
        return max((age for (_, one), age in self.ages.items() if one == spout), default=None)


def read_oldest(acker: Acker, stats: Stats, *, most_blocks: int = MOST_BLOCKS) -> Oldest:
    """Searches the buckets of each shard, the oldest first.

    Stops in a shard when every spout that has pending roots was found in an older bucket than those to come, so an
    extended root in a younger bucket may be older still. While a rotation renames buckets, one may be missed.
    """
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
    """The blocks of a bucket, with their age if they have pending roots."""
    keys, cursor = acker.shard_keys[shard], b"0"
    while True:
        scan = Command(shard, ("HSCAN", keys.heads(bucket), cursor, "COUNT", _AT_ONCE))
        (cursor, flat), now = acker.transport.run([scan, Command(shard, ("TIME",))])
        now_ms = int(now[0]) * 1000 + int(now[1]) // 1000
        for block, packed in zip(flat[::2], flat[1::2], strict=True):
            head = read_head(packed)
            yield block, age_ms(now_ms, head.birth) if head.initialised and head.live else None
        if cursor == b"0":
            return
