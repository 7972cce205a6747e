"""Messages for the other commands to look at, while `redis-acker demo --keep` runs."""

from __future__ import annotations

import random
import threading

from redis_acker.acker import Acker
from redis_acker.ids import new_edges
from redis_acker.rotator import Rotator

SPOUT = "orders"
WAVE = 50
"""Messages a second."""

COMPLETE, FAIL = 0.8, 0.05
"""Shares of a wave; the rest is acked by halves, and times out."""


def traffic(acker: Acker, stop: threading.Event) -> None:
    """Emits a wave every second until told to stop."""
    number = 0
    with Rotator(acker).start():
        while not stop.is_set():
            roots = acker.allocate(SPOUT, WAVE)
            first, second = new_edges(WAVE), new_edges(WAVE)
            acker.init(roots, first, message_ids=[f"order-{number + i:06}" for i in range(WAVE)], quiet=True)
            acker.ack(roots, first ^ second)
            number += WAVE
            stop.wait(0.5)
            order = random.sample(range(WAVE), WAVE)
            done, failed = order[: int(COMPLETE * WAVE)], order[int(COMPLETE * WAVE) : int((COMPLETE + FAIL) * WAVE)]
            acker.ack(roots[done], second[done])
            acker.fail(roots[failed], component="payment", error="card declined")
            stop.wait(0.5)
