"""Until when an init may arrive, by the clock of the server that gets it.

What a client has sent and given up may still be on its way, for example in a proxy. An init that arrives when its block
was finished and forgotten would make the roots pending once more. A finished block is remembered for T; an init says
that it is void 3/4 T after it was first sent, and the client gives up after T/2. So it is refused before it can do
harm, and a quarter of T is left on both sides for clocks that are read, or run, inexactly.
"""

from __future__ import annotations

from collections.abc import Callable

from redis_acker.clock import SYSTEM_CLOCK

LEARN_EVERY_S = 60.0
"""Clocks drift apart, and a server may be replaced by its replica."""


class ServerClocks:
    """The clocks of the shards' servers, compared with this machine's. Asks each when it is needed."""

    def __init__(self, ask_ms: Callable[[int], int], timeout_ms: int) -> None:
        """ask_ms: the clock of a shard's server."""
        self._ask_ms = ask_ms
        self._allowed_ms = 3 * timeout_ms // 4
        self._inexact_ms = timeout_ms // 8
        self._ahead_ms: dict[int, tuple[float, float]] = {}
        """By shard: how far its clock is ahead of now_s(), and when that has to be asked again."""

    @staticmethod
    def now_s() -> float:
        """The clock of this machine that they are compared with."""
        return SYSTEM_CLOCK.monotonic_s()

    def until_ms(self, shard: int, since_s: float | None = None) -> int:
        """The last moment for an init that is first sent now, or was at since_s, by now_s()."""
        if shard not in self._ahead_ms or self.now_s() >= self._ahead_ms[shard][1]:
            self._learn(shard)
        ahead_ms, _ = self._ahead_ms[shard]
        return int(ahead_ms + 1000 * (self.now_s() if since_s is None else since_s)) + self._allowed_ms

    def have_changed(self) -> bool:
        """Asks again. Whether a clock was set, or that of another server has taken its place."""
        before = dict(self._ahead_ms)
        for shard in before:
            self._learn(shard)
        return any(abs(self._ahead_ms[shard][0] - old_ms) > self._inexact_ms for shard, (old_ms, _) in before.items())

    def _learn(self, shard: int) -> None:
        asked_s = self.now_s()
        ahead_ms = self._ask_ms(shard) - 1000 * asked_s  # too far by the way there: better than to refuse too soon
        answered_s = self.now_s()
        is_exact = 1000 * (answered_s - asked_s) < self._inexact_ms
        self._ahead_ms[shard] = ahead_ms, answered_s + LEARN_EVERY_S if is_exact else 0.0
