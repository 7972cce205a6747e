"""The only place where a Redis key is spelt. All keys of a shard share one hash tag, so one node of a cluster."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from redis_acker.errors import BadInput

if TYPE_CHECKING:
    from redis_acker.store.streams import Kind

MAX_SHARDS = 16_384
"""Most shards that a namespace can have."""

MAX_SPOUT = 4_095
"""Highest number of a spout, which is a part of its keys and of its roots."""

_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}")

KeyKind: TypeAlias = Literal[
    "all", "blocks", "settings", "counters", "scratch", "quarantine", "records", "finished", "streams", "rows", "runs"
]

_NAMES: dict[KeyKind, tuple[str, ...]] = {
    "all": ("*",),
    "settings": ("meta",),
    "counters": ("counters",),
    "scratch": ("scratch:*",),
    "quarantine": ("quarantine",),
    "records": ("heads:*", "vals:*", "ids:*"),
    "finished": ("finished:*",),
    "streams": ("completions:*", "failures:*"),
    "rows": ("rows:*",),
    "runs": ("progress:*", "sequences"),
}
"""What follows the prefix. Rows are Spark's keys of failed rows, runs hold the progress of its jobs."""

_BLOCKS: tuple[KeyKind, ...] = ("settings", "counters", "scratch", "quarantine", "records", "finished", "streams")
_NAMES["blocks"] = tuple(name for kind in _BLOCKS for name in _NAMES[kind])
"""The keys that scripts on blocks declare."""


def check_namespace(namespace: str) -> str:
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise BadInput(
            f"A namespace is 1 to 64 letters, digits, '_', '.' or '-', not {reprlib.repr(namespace)}: choose another "
            "name."
        )
    return namespace


def key_prefix(namespace: str, shard: int) -> str:
    """How every key of a shard begins. Its hash tag decides which node of a cluster holds the shard."""
    return f"acker:{{{namespace}:{shard}}}:"


def key_patterns(namespace: str, *kinds: KeyKind) -> list[str]:
    """Patterns for ACL rules that match the keys of all shards of a namespace."""
    return [f"acker:{{{namespace}:*}}:{name}" for kind in kinds for name in _NAMES[kind]]


class ShardKeys:
    """The keys of one shard of a namespace."""

    def __init__(self, namespace: str, shard: int, buckets: int) -> None:
        self.prefix = key_prefix(namespace, shard)
        self._buckets = buckets

    @property
    def meta(self) -> str:
        """The settings and the clock of the rotation."""
        return self.prefix + "meta"

    @property
    def counters(self) -> str:
        """What was counted, and the time of the newest init."""
        return self.prefix + "counters"

    @property
    def spouts(self) -> str:
        """Spout name -> number; used in shard 0 only."""
        return self.prefix + "spouts"

    @property
    def sequences(self) -> str:
        """Spout number -> next block sequence; used in shard 0 only."""
        return self.prefix + "sequences"

    @property
    def quarantine(self) -> str:
        """Where it was -> what could not be read."""
        return self.prefix + "quarantine"

    def name_of(self, key: str) -> str:
        """A key of this shard without its prefix, for people."""
        return key.removeprefix(self.prefix)

    def completions(self, spout: int) -> str:
        return f"{self.prefix}completions:{spout}"

    def failures(self, spout: int) -> str:
        return f"{self.prefix}failures:{spout}"

    def stream(self, kind: Kind, spout: int) -> str:
        """The completions or the failures of a spout."""
        return self.completions(spout) if kind == "completions" else self.failures(spout)

    def lease(self, spout: int) -> str:
        """Who drives the spout; used in shard 0 only."""
        return f"{self.prefix}lease:{spout}"

    def began(self, spout: int) -> str:
        """The first block sequence of the driver at work, or of the last one if it died; used in shard 0 only."""
        return f"{self.prefix}began:{spout}"

    @property
    def tracked_streams(self) -> str:
        """Spout -> the Spark streaming query that has it, and how far that has come; used in shard 0 only."""
        return self.prefix + "tracked_streams"

    @property
    def spout_states(self) -> str:
        """What is said of spouts: that one is paused, its lag; used in shard 0 only."""
        return self.prefix + "spout_states"

    def retries(self, spout: int) -> str:
        """Message id -> its failed attempts; used in shard 0 only."""
        return f"{self.prefix}retries:{spout}"

    def dead(self, spout: int) -> str:
        """Message id -> dead letter; used in shard 0 only."""
        return f"{self.prefix}dead:{spout}"

    def requests(self, spout: int) -> str:
        """Message id -> its failed attempts, where somebody asks the driver for a replay; used in shard 0 only."""
        return f"{self.prefix}requests:{spout}"

    def replayed(self, spout: int) -> str:
        """Failed roots whose replay was requested, scored by the time of the request; used in shard 0 only."""
        return f"{self.prefix}replayed:{spout}"

    def withdrawn(self, spout: int) -> str:
        """Entry of the failure stream -> who withdrew it, and what it says."""
        return f"{self.prefix}withdrawn:{spout}"

    def run(self, spout: int) -> str:
        """The roots of the Spark run in progress; used in shard 0 only."""
        return f"{self.prefix}run:{spout}"

    def progress(self, spout: int, part: str = "") -> str:
        """How far the Spark run in progress has come, by partition; used in shard 0 only. part: of a stream that has
        two runs at once, the name of the second."""
        return f"{self.prefix}progress:{spout}:{part}" if part else f"{self.prefix}progress:{spout}"

    def done_keys(self, spout: int, part: str = "") -> str:
        """First block sequence of a portion -> keys of its messages, once its sink has returned; used in shard 0
        only."""
        return f"{self.progress(spout, part)}:keys"

    def failed_rows(self, run: str) -> str:
        """Row key -> why the row failed in a Spark run; used in shard 0 only."""
        return f"{self.prefix}rows:{run}"

    @property
    def expired_heads(self) -> str:
        return self.prefix + "heads:expired"

    def heads(self, bucket: int) -> str:
        """Block -> head in a bucket: 0 is the nursery, the number of buckets stands for expired."""
        return self.expired_heads if bucket == self._buckets else f"{self.prefix}heads:{bucket}"

    @cached_property
    def fixed(self) -> list[str]:
        """The keys every block script declares first, in the order of lua/lib/shard.lua."""
        places = [*map(str, range(self._buckets)), "expired"]
        return [
            self.meta,
            self.prefix + "scratch:a",
            self.prefix + "scratch:b",
            self.quarantine,
            self.counters,
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
