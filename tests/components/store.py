"""A namespace on a clock that the test moves, and what its spouts hear."""

from __future__ import annotations

from typing import Any

from redis_acker import Acker, Failure, Rotator
from redis_acker.retries.book import DeadLetter
from redis_acker.retries.dead_letters import DeadLetters
from tests.backends import Backend
from tests.clock import Clock

TIMEOUT_MS = 30_000
TICK_MS = 15_000
"""Time between two rotations with 3 buckets."""

SPOUT = "orders"

FIXED_KEYS = {"meta", "counters", "spouts", "sequences", "completions", "failures", "dead"}
"""Keys that a namespace keeps when nothing is in work."""


class Store:
    """What was read from its streams is gone from them."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self.backend = backend
        self.clock = Clock()
        self.acker = Acker(backend.target, namespace=namespace, clock=self.clock, timeout_ms=TIMEOUT_MS)
        self.rotator = Rotator(self.acker)

    def start_root(self, ack_val: int, *, spout: str = SPOUT) -> int:
        """A pending root, of which the spout has sent edges with this XOR."""
        roots = self.acker.allocate(spout, 1)
        assert self.acker.init(roots, [ack_val]).initialised == 1
        return int(roots[0])

    def ack_val(self, root: int) -> int | None:
        """The stored ack val; None if the root is not pending."""
        state = self.acker.inspect(root)
        return state.ack_val if state.state == "pending" else None

    def is_pending(self, root: int) -> bool:
        return self.acker.inspect(root).state == "pending"

    def pass_time(self, ms: int) -> int:
        """Lets time pass, and whatever expires by then. Returns how many roots that were."""
        self.clock.advance(ms)
        return self.rotator.once().expired

    def expire(self) -> int:
        """Lets so much time pass that every pending root times out, unless it is extended again."""
        return sum(self.pass_time(TICK_MS) for _ in range(3))

    def completed(self, spout: str = SPOUT) -> list[int]:
        """Roots that are complete, each as often as its spout is told so."""
        with self.acker.completions(spout) as reader:
            return sorted(int(root) for completion in reader.consume() for root in completion.roots)

    def failures(self, spout: str = SPOUT) -> list[Failure]:
        with self.acker.failures(spout) as reader:
            return list(reader.consume())

    def failed(self, spout: str = SPOUT) -> list[int]:
        return sorted(int(root) for failure in self.failures(spout) for root in failure.roots)

    def dead_letters(self, spout: str) -> list[DeadLetter]:
        return list(DeadLetters(self.acker, spout=spout))

    def keys(self) -> set[str]:
        """Names of the keys there are, without namespace and number of a spout."""
        names = (key.decode().partition("}:")[2] for key in self.backend.keys(self.acker.namespace))
        return {name.partition(":")[0] for name in names}

    def close(self) -> None:
        """Lets everything expire, takes every final event out, and looks whether a key is left behind."""
        for _ in range(3):
            self.expire()
        for spout in self.acker.spout_names().values():
            # Under the name of a driver, which gets what a driver held that was ended by an error.
            for reader in (
                self.acker.completions(spout, consumer="driver"),
                self.acker.failures(spout, consumer="driver"),
            ):
                with reader:
                    list(reader.consume())
        assert self.acker.pending_count() == 0
        assert self.keys() <= FIXED_KEYS
        client: Any = self.backend.client()
        for key in self.backend.keys(self.acker.namespace):
            assert client.type(key) != b"stream" or client.xlen(key) == 0
        self.acker.close()
