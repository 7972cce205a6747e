"""Lets roots expire: ages the buckets step by step, and drains the oldest into the failure streams."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from redis_acker.clock import Signal
from redis_acker.errors import AckerError
from redis_acker.store.ids import spouts_of
from redis_acker.store.packed import pack_blocks, unpack_expired

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

DRAIN_COST = 2048
"""What one call may drain: so many roots in blocks, or half as many lone ones. lua/expired.lua says what a block costs:
its roots, or its bytes where these are more."""

PAGE_BLOCKS = 1000
"""Expired blocks read by one call."""

GATHERED_BLOCKS = 100_000
"""Expired blocks gathered before they are drained. In the order of their names neighbours are drained together, and
marked as finished in one bitmap: for lone roots that is most of the work."""

LOOK_EVERY_S = 1.0
"""How often a rotator looks at the servers: whether they know the scripts, since executors wait for them and may not
load them, and whether they were restarted or replaced, so that the entries of streams say so."""

_SHORTEST_PAUSE_S = 0.005

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rotation:
    """What a round of rotation and drain did."""

    turned: int
    """Steps by which the shards aged."""
    expired: int
    """Roots that timed out."""
    orphans: int
    """Records whose init never came."""
    due_in_ms: int
    """Time until the next step of any shard."""


class Rotator:
    """Rotates and drains a namespace. Any number may run at once, anywhere, and each may stop at any point."""

    def __init__(self, acker: Acker) -> None:
        self._shards, self._settings, self.clock = acker.shards, acker.settings, acker.clock
        self._look_at_s = 0.0

    def once(self) -> Rotation:
        """Drains what has expired, and rotates until everything that is due has: after a time without a rotator that
        takes several steps. Steps that would only age empty buckets may be left for the next call."""
        turned = expired = orphans = 0
        due_in_ms = self._settings.tick_ms
        for shard in range(self._settings.shards):
            steps = 0
            # The first step goes at least to the time of the youngest record; then each bucket ages out.
            while steps < self._settings.buckets + 2:
                state, shard_due_ms = self._shards.rotate(shard, self._settings.tick_ms)
                # Also when it is early: the reply to the rotation before may have been lost.
                drained = self.drain(shard)
                expired, orphans = expired + drained[0], orphans + drained[1]
                if state == "early":
                    break
                steps += state == "turned"
            turned += steps
            due_in_ms = min(due_in_ms, shard_due_ms)
        return Rotation(turned, expired, orphans, due_in_ms)

    def drain(self, shard: int) -> tuple[int, int]:
        """Empties the expired bucket of a shard in bounded steps. Returns the counts of expired roots and orphans."""
        expired = orphans = 0
        heads = self._shards.heads(shard, self._settings.buckets)
        while heads.exists():
            for names, costs in self._gathered(shard):
                for reply in self._shards.drain(shard, _parts(names, costs)):
                    expired, orphans = expired + reply[0], orphans + reply[1]
        return expired, orphans

    def _gathered(self, shard: int) -> Iterator[tuple[bytes, bytes]]:
        """The expired blocks and what each costs, many at a time."""
        cursor, names, costs = b"0", list[bytes](), list[bytes]()
        while True:
            cursor, some, their_costs, set_aside = self._shards.expired(shard, cursor, PAGE_BLOCKS)
            names.append(some)
            costs.append(their_costs)
            if set_aside:
                log.error(
                    "%d expired records of shard %d cannot be read and are set aside: `redis-acker quarantine list` "
                    "shows them.",
                    set_aside,
                    shard,
                )
            is_over = cursor == b"0"
            if is_over or len(names) * PAGE_BLOCKS >= GATHERED_BLOCKS:
                yield b"".join(names), b"".join(costs)
                names, costs = [], []
            if is_over:
                return

    def run(self, stop: threading.Event) -> None:
        """Rotates until told to stop. When a server cannot be reached, logs it and tries again."""
        failing = False
        while not stop.is_set():
            try:
                rotation = self.once()
                pause_s = rotation.due_in_ms / 1000
                if failing:
                    log.info("Rotation works again.")
                if rotation.expired or rotation.orphans:
                    facts = {"expired": rotation.expired, "orphans": rotation.orphans}
                    log.info("%d roots timed out, %d orphans dropped.", *facts.values(), extra=facts)
                failing = False
            except AckerError as error:
                log.error("Rotation failed, roots expire late until it works again: %s", error)
                pause_s, failing = 1.0, True
            self._pause(stop, max(pause_s, _SHORTEST_PAUSE_S))

    def _pause(self, stop: threading.Event, seconds: float) -> None:
        """Waits, and looks now and then whether a server was restarted or has forgotten the scripts."""
        clock = self.clock
        deadline = clock.monotonic_s() + seconds
        while (left_s := deadline - clock.monotonic_s()) >= 0.001:  # less than a clock of whole ms can wait
            if clock.wait_for(stop, min(LOOK_EVERY_S, left_s)):
                return
            self._look_at_servers()

    def _look_at_servers(self) -> None:
        if self.clock.monotonic_s() < self._look_at_s:
            return
        for loaded in self._shards.transport.load_scripts():
            if loaded.scripts:
                log.info("%s did not know %d scripts: they are loaded.", loaded.server, loaded.scripts)
        with suppress(AckerError):  # the next rotation says what is wrong
            self._shards.note_histories()
        self._look_at_s = self.clock.monotonic_s() + LOOK_EVERY_S

    def start(self) -> RotatorThread:
        """Runs in a thread until its stop()."""
        return RotatorThread(self)


def _parts(names: bytes, costs: bytes) -> Iterator[tuple[list[int], bytes]]:
    """The calls that drain blocks, each once and in the order of their names: their spouts, and the blocks."""
    blocks, cost_of = unpack_expired(names, costs)
    blocks, first = np.unique(blocks, return_index=True)
    cost_up_to = np.cumsum(cost_of[first])
    start = cost_before = 0
    while start < len(blocks):
        end = max(start + 1, int(np.searchsorted(cost_up_to, cost_before + DRAIN_COST, side="right")))
        part = blocks[start:end]
        yield np.unique(spouts_of(part)).tolist(), pack_blocks(part)
        start, cost_before = end, int(cost_up_to[end - 1])


class RotatorThread:
    """A rotator in the background. Also a context manager."""

    def __init__(self, rotator: Rotator) -> None:
        self._stop = Signal()
        self._clock = rotator.clock
        self._thread = self._clock.thread("rotator", partial(rotator.run, self._stop))
        self._thread.start()

    def stop(self) -> None:
        """Ends the loop after the current round."""
        self._stop.set()
        self._clock.join(self._thread, None)

    def __enter__(self) -> RotatorThread:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
