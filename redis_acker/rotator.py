"""Lets roots expire: rotates the buckets as they age and drains the oldest into the failure streams."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redis_acker.errors import AckerError
from redis_acker.ids import spout_of
from redis_acker.transport import Command
from redis_acker.views import read_head

if TYPE_CHECKING:
    from redis_acker.acker import Acker

DRAIN_ROOTS = 2048
"""Roots drained by one call."""

DRAIN_BLOCKS = 100
"""Blocks looked at, and drained, by one call."""

_SHORTEST_PAUSE_S = 0.005

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rotation:
    """What a round of rotation and drain did."""

    turned: int
    """Steps by which shards were aged."""
    expired: int
    """Roots that timed out."""
    orphans: int
    """Records whose init never came."""
    due_in_ms: int
    """Until the next step of any shard."""


class Rotator:
    """Rotates and drains a namespace. Any number of them may run at once, anywhere; each can stop at any point."""

    def __init__(self, acker: Acker) -> None:
        self._acker = acker

    def once(self) -> Rotation:
        """Drains what is expired, and rotates until all that is due has expired: more than once after a time without
        rotator. Steps that would only age empty buckets may be left for the next time."""
        turned = expired = orphans = 0
        due_in_ms = self._acker.settings.tick_ms
        for shard in range(self._acker.settings.shards):
            steps = 0
            # The first step goes to the time of the youngest record, or further; then each bucket ages out.
            while steps < self._acker.settings.buckets + 2:
                state, shard_due_ms = self._rotate(shard)
                # Also when it is early: the reply to the rotation that was in time may have been lost.
                drained = self.drain(shard)
                expired, orphans = expired + drained[0], orphans + drained[1]
                if state == "early":
                    break
                steps += state == "turned"
            turned += steps
            due_in_ms = min(due_in_ms, shard_due_ms)
        return Rotation(turned, expired, orphans, due_in_ms)

    def drain(self, shard: int) -> tuple[int, int]:
        """Empties the expired bucket of a shard in bounded steps. Returns expired roots and orphans."""
        expired = orphans = 0
        key = self._acker.shard_keys[shard].expired_heads
        cursor = b"0"
        while True:
            scan = Command(shard, ("HSCAN", key, cursor, "COUNT", DRAIN_BLOCKS))
            cursor, flat = self._acker.transport.run_one(scan)
            for reply in self._drain_blocks(shard, flat):
                expired, orphans = expired + reply[0], orphans + reply[1]
            if cursor == b"0" and not self._acker.transport.run_one(Command(shard, ("EXISTS", key))):
                return expired, orphans

    def _drain_blocks(self, shard: int, flat: list[bytes]) -> list[list[int]]:
        """Drains blocks, given with their heads, in calls of bounded work."""
        parts: list[list[bytes]] = [[]]
        roots = 0
        for block, head in zip(flat[::2], flat[1::2], strict=True):
            size = read_head(head).size
            if roots + size > DRAIN_ROOTS or len(parts[-1]) == DRAIN_BLOCKS:
                parts.append([])
                roots = 0
            parts[-1].append(block)
            roots += size
        return self._acker.transport.run(self._drain_command(shard, part) for part in parts if part)

    def _drain_command(self, shard: int, blocks: list[bytes]) -> Command:
        spouts = sorted({spout_of(int.from_bytes(block, "big")) for block in blocks})
        return self._acker.block_command("drain", shard, spouts, [b"".join(blocks)])

    def _rotate(self, shard: int) -> tuple[str, int]:
        command = self._acker.block_command("rotate", shard, [], [self._acker.settings.tick_ms])
        state, due_in_ms = self._acker.transport.run_one(command)
        return state.decode(), due_in_ms

    def run(self, stop: threading.Event) -> None:
        """Rotates until told to stop. A server that cannot be reached is tried again, with a log line."""
        failing = False
        while not stop.is_set():
            try:
                rotation = self.once()
                pause_s = rotation.due_in_ms / 1000
                if failing:
                    log.info("Rotation works again.")
                if rotation.expired or rotation.orphans:
                    log.info("%d roots timed out, %d orphans dropped.", rotation.expired, rotation.orphans)
                failing = False
            except AckerError as error:
                log.error("Rotation failed, roots expire late until it works again: %s", error)
                pause_s, failing = 1.0, True
            stop.wait(max(pause_s, _SHORTEST_PAUSE_S))

    def start(self) -> RotatorThread:
        """Runs in a thread until its stop()."""
        return RotatorThread(self)


class RotatorThread:
    """A rotator in the background. Also a context manager."""

    def __init__(self, rotator: Rotator) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=rotator.run, args=(self._stop,), name="rotator", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the loop after the round it is in."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> RotatorThread:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
