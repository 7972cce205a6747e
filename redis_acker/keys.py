"""The only place where a Redis key is spelt. All keys of a shard share one hash tag, so one node of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property


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

    @property
    def expired_heads(self) -> str:
        return self.prefix + "heads:expired"

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
