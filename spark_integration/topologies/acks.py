"""The acks and fails of a task, sent from the executor straight to their shards."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from redis_acker.components.bolt import AckBuffer
from redis_acker.components.tuples import Anchors, Tuple
from redis_acker.errors import AckerError, ServerUnavailable
from redis_acker.store.acker import Acker
from redis_acker.store.ids import INDEX_BITS, Token
from redis_acker.store.streams import Cause

SEND_EVERY_S = 1.0
"""How often a task that works for long sends what is final."""

STORE_AWAY_S = 600.0
"""How long a task waits for a store that is away, before it fails."""

_LONGEST_PAUSE_S = 2.0

T = TypeVar("T")

log = logging.getLogger(__name__)


class TaskAcks(AckBuffer):
    """Gathers what one attempt at a task acks and fails.

    All attempts at a task send their acks under one token, and an attempt sends everything it has for a block of roots
    in one call, when every tuple of the block is finished. So of each block the first attempt that comes counts, as a
    whole, and all others change nothing.
    """

    def __init__(self, acker: Acker, token: Token) -> None:
        super().__init__(acker)
        self._store, self._token = acker, token
        self._open: Counter[int] = Counter()
        self._vals: dict[int, dict[int, int]] = {}
        """Ack vals by root, by block."""
        self._failed: dict[Cause, set[int]] = {}
        self.failed_roots: set[int] = set()
        self._next_send_s = time.monotonic() + SEND_EVERY_S

    def expect(self, tup: Tuple) -> None:
        """A tuple that this attempt is going to ack or fail; also one that it has acked and is to fail after all."""
        self._open.update(_blocks(tup.anchors))

    def ack(self, anchors: Anchors, child_edges: int) -> None:
        with self._finishing(anchors):
            for root, edge in anchors.items():
                vals = self._vals.setdefault(root >> INDEX_BITS, {})
                vals[root] = vals.get(root, 0) ^ edge ^ child_edges

    def fail(self, anchors: Anchors, cause: Cause) -> None:
        with self._finishing(anchors):
            if anchors:
                self._failed.setdefault(cause, set()).update(anchors)
                self.failed_roots.update(anchors)

    @contextmanager
    def _finishing(self, anchors: Anchors) -> Iterator[None]:
        with self._gathering:
            yield
            self._open.subtract(_blocks(anchors))

    def is_due(self) -> bool:
        """Whether the last send was long ago."""
        return time.monotonic() >= self._next_send_s

    def send(self, *, acks: bool = True) -> None:
        """Sends fails, and the acks of blocks of which every tuple is finished. acks=False keeps those back."""
        with self._gathering:
            failed, self._failed = self._failed, {}
            final = [block for block in self._vals if self._open[block] <= 0] if acks else []
            sent = [vals for block in final for vals in self._vals.pop(block).items()]
        for cause, roots in failed.items():
            why = {"component": cause.component, "error": cause.error}
            when_it_is_there(partial(self._store.fail, sorted(roots), fatal=cause.fatal, **why))
        # A root that has failed has its final event, and needs no acks.
        acked = {root: val for root, val in sent if root not in self.failed_roots}
        if acked:
            when_it_is_there(partial(self._store.ack, list(acked), list(acked.values()), token=self._token))
        self._next_send_s = time.monotonic() + SEND_EVERY_S


def when_it_is_there(call: Callable[[], T]) -> T:
    """Calls the store, and waits for it while it is away."""
    pause_s, until_s = 0.05, time.monotonic() + STORE_AWAY_S
    while True:
        try:
            return call()
        except AckerError as error:
            is_away = isinstance(error, ServerUnavailable) or isinstance(error.__cause__, ServerUnavailable)
            if not is_away or time.monotonic() > until_s:
                raise
            log.warning("A task waits for the store: %s", error)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _blocks(anchors: Anchors) -> Iterator[int]:
    return (root >> INDEX_BITS for root in anchors)
