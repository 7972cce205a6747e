"""An acker on a clock that the test moves, in the words in which the tests of the store speak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis_acker import Acker, Completion, Failure, Rotator, new_edges
from redis_acker.store.ids import U64Array
from redis_acker.store.message_ids import MessageId
from redis_acker.store.rotator import Rotation
from tests.backends import Backend
from tests.clock import Clock

SPOUT = "orders"
TIMEOUT_MS = 30_000
TICK_MS = 15_000
"""Time between two rotations with 3 buckets."""

LASTING = ("meta", "counters", "spouts", "sequences", "completions", "failures")
"""Keys that a namespace keeps when nothing is pending."""

UNCHECKED = (b"scratch:a", b"scratch:b", b"sequences")
"""Keys that may change when a call is refused."""


class Failed(NamedTuple):
    """One root of a failure."""

    root: int
    message_id: MessageId | None
    attempt: int
    age_ms: int
    reason: str
    component: str
    error: str
    fatal: bool


class Ledger:
    """A namespace of one test. What was read from its streams is gone from them."""

    def __init__(self, backend: Backend, namespace: str, **settings: Any) -> None:
        self.backend = backend
        self.clock = Clock()
        settings = {"shards": 2, "buckets": 3, "timeout_ms": TIMEOUT_MS, **settings}
        self.acker = Acker(backend.target, namespace=namespace, clock=self.clock, **settings)
        self.rotator = Rotator(self.acker)

    def start(self, count: int, spout: str = SPOUT, **options: Any) -> tuple[U64Array, U64Array]:
        """Pending roots and the edges that complete them."""
        roots, edges = self.acker.allocate(spout, count), new_edges(count)
        assert self.acker.init(roots, edges, **options).initialised == count
        return roots, edges

    def start_one(self, **options: Any) -> tuple[int, int]:
        roots, edges = self.start(1, **options)
        return int(roots[0]), int(edges[0])

    def pass_time(self, ms: int) -> Rotation:
        """Lets time pass, and whatever is due then."""
        self.clock.advance(ms)
        return self.rotator.once()

    def turn(self, shard: int = 0) -> str:
        """One step of rotation without the drain that follows; says what came of it."""
        return self.acker.shards.rotate(shard, self.acker.settings.tick_ms)[0]

    def expire_undrained(self) -> None:
        """Ages all that is pending into the expired bucket, where it waits for a drain."""
        for _ in range(self.acker.settings.buckets):
            self.clock.advance(self.acker.settings.tick_ms)
            assert [self.turn(shard) for shard in range(self.acker.settings.shards)] == ["turned"] * len(self.shards)

    @property
    def shards(self) -> range:
        return range(self.acker.settings.shards)

    def completions(self, spout: str = SPOUT) -> list[Completion]:
        with self.acker.completions(spout) as reader:
            return list(reader.consume())

    def completed(self, spout: str = SPOUT) -> list[int]:
        return sorted(int(root) for one in self.completions(spout) for root in one.roots)

    def failures(self, spout: str = SPOUT) -> list[Failed]:
        with self.acker.failures(spout) as reader:
            return sorted(one for failure in reader.consume() for one in each_root(failure))

    def failed(self, spout: str = SPOUT) -> list[int]:
        return [one.root for one in self.failures(spout)]

    def count(self, name: str) -> int:
        """A counter of ShardStats, over all shards."""
        return sum(getattr(shard, name) for shard in self.acker.stats().shards)

    def passing_keys(self) -> set[str]:
        """Names of the keys that are not meant to stay, without their prefix."""
        names = {key.decode().partition("}:")[2] for key in self.backend.keys(self.acker.namespace)}
        return {name for name in names if name.partition(":")[0] not in LASTING}

    def stored(self) -> dict[bytes, Any]:
        """All that is stored of roots. What a refused call leaves in the scratch keys the next one deletes."""
        client: Any = self.backend.client()
        read = {b"hash": client.hgetall, b"stream": client.xrange, b"string": client.get}
        keys = self.backend.keys(self.acker.namespace)
        return {key: read[client.type(key)](key) for key in keys if not key.endswith(UNCHECKED)}

    def close(self) -> None:
        """Lets everything expire, takes every final event out, and looks whether a key is left behind."""
        for _ in range(3 * self.acker.settings.buckets):
            if not self.passing_keys():
                break
            self.pass_time(self.acker.settings.tick_ms)
        for spout in self.acker.spout_names().values():
            self.completions(spout)
            self.failures(spout)
        assert self.acker.pending_count() == 0
        assert self.passing_keys() == set()
        client: Any = self.backend.client()
        for key in self.backend.keys(self.acker.namespace):
            assert client.type(key) != b"stream" or client.xlen(key) == 0
        self.acker.close()


def each_root(failure: Failure) -> list[Failed]:
    cause = (failure.reason, failure.component, failure.error, failure.fatal)
    columns = zip(failure.roots.tolist(), failure.message_ids, failure.attempts, failure.ages_ms, strict=True)
    return [Failed(*column, *cause) for column in columns]


def as_ints(roots: U64Array | Sequence[int]) -> list[int]:
    return sorted(int(root) for root in roots)
