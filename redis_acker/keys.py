"""The only place where a Redis key is spelt. All keys of a shard share one hash tag, so one node of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Literal, TypeAlias

KeyKind: TypeAlias = Literal["all", "blocks", "rows"]

_NAMES: dict[KeyKind, tuple[str, ...]] = {
    "all": ("*",),
    "blocks": ("meta", "scratch:*", "heads:*", "vals:*", "ids:*", "finished:*", "completions:*", "failures:*"),
    "rows": ("rows:*",),
}
"""What comes after the prefix of keys: of all, of those that scripts on blocks declare, of the failed rows of Spark."""


def key_patterns(namespace: str, *kinds: KeyKind) -> list[str]:
    """Patterns for ACL rules that match keys of all shards of a namespace."""
    return [f"acker:{{{namespace}:*}}:{name}" for kind in kinds for name in _NAMES[kind]]


class ShardKeys:
    """The keys of one shard of a namespace."""

    def __init__(self, namespace: str, shard: int, buckets: int) -> None:
        self.prefix = f"acker:{{{namespace}:{shard}}}:"
        self._buckets = buckets

    @property
    def meta(self) -> str:
        return self.prefix + "meta"

    @property
    def spouts(self) -> str:
        """Spout name -> number; used in shard 0 only."""
        return self.prefix + "spouts"

    @property
    def sequences(self) -> str:
        """Spout number -> next block sequence; used in shard 0 only."""
        return self.prefix + "sequences"

    def completions(self, spout: int) -> str:
        return f"{self.prefix}completions:{spout}"

    def failures(self, spout: int) -> str:
        return f"{self.prefix}failures:{spout}"

    def lease(self, spout: int) -> str:
        """Who drives the spout; used in shard 0 only."""
        return f"{self.prefix}lease:{spout}"

    def retries(self, spout: int) -> str:
        """Message id -> what is known of its failed attempts; used in shard 0 only."""
        return f"{self.prefix}retries:{spout}"

    def dead(self, spout: int) -> str:
        """Message id -> dead letter; used in shard 0 only."""
        return f"{self.prefix}dead:{spout}"

    def requests(self, spout: int) -> str:
        """Message id -> failed attempts after which others ask the driver for a replay; used in shard 0 only."""
        return f"{self.prefix}requests:{spout}"

    def replayed(self, spout: int) -> str:
        """Failed roots whose replay was asked for, by the time of it; used in shard 0 only."""
        return f"{self.prefix}replayed:{spout}"

    def taken(self, spout: int) -> str:
        """Entry of the failure stream -> who drains it, and what it says."""
        return f"{self.prefix}taken:{spout}"

    def run(self, spout: int) -> str:
        """The roots of the Spark run that is under way; used in shard 0 only."""
        return f"{self.prefix}run:{spout}"

    def failed_rows(self, run: str) -> str:
        """Key of a row -> why it failed, in a Spark run; used in shard 0 only."""
        return f"{self.prefix}rows:{run}"

    @property
    def expired_heads(self) -> str:
        return self.prefix + "heads:expired"

    def heads(self, bucket: int) -> str:
        """Block -> head in a bucket: 0 is the nursery, the number of buckets stands for what is expired."""
        return self.expired_heads if bucket == self._buckets else f"{self.prefix}heads:{bucket}"

    @cached_property
    def fixed(self) -> list[str]:
        """The keys every block script declares first, in the order of lua/lib/shard.lua."""
        places = [*map(str, range(self._buckets)), "expired"]
        return [
            self.meta,
            self.prefix + "scratch:a",
            self.prefix + "scratch:b",
            *(f"{self.prefix}heads:{place}" for place in places),
            *(f"{self.prefix}vals:{place}" for place in places),
            *(f"{self.prefix}ids:{place}" for place in places),
            *(f"{self.prefix}finished:{tick}" for tick in range(self._buckets)),
        ]

    def with_streams(self, spouts: Iterable[int]) -> list[str]:
        """The fixed keys and the streams of some spouts."""
        keys = list(self.fixed)
        for spout in spouts:
            keys += [self.completions(spout), self.failures(spout)]
        return keys
