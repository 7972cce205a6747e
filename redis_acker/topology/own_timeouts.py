"""The timeout of a topology that is shorter than that of its namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from redis_acker.clock import Clock
from redis_acker.store.acker import Acker
from redis_acker.store.streams import Cause


class OwnTimeouts:
    """Finds and fails pending roots that have not been alive for a timeout: the store would wait for longer."""

    def __init__(self, acker: Acker, timeout_s: float, clock: Clock) -> None:
        self._acker, self._timeout_s, self._now_s = acker, timeout_s, clock.monotonic_s
        self._alive_s: dict[int, float] = {}
        """When each pending root was last known to be alive."""

    def overdue(self, pending: Set[int], alive: Set[int]) -> list[int]:
        """Called often within a timeout. alive: roots that wait or are worked on, or were extended lately."""
        now_s = self._now_s()
        self._alive_s = {root: now_s if root in alive else self._alive_s.get(root, now_s) for root in pending}
        return [root for root, alive_s in self._alive_s.items() if now_s - alive_s >= self._timeout_s]

    def fail(self, roots: Sequence[int], holders: Mapping[int, Cause]) -> None:
        """holders: which component has a root, and where."""
        fails: dict[Cause, list[int]] = {}
        for root in roots:
            holder = holders.get(root) or Cause("", "nothing in this process holds it: another program does")
            error = f"timed out, the topology allows {self._timeout_s:g} s: {holder.error}"
            fails.setdefault(Cause(holder.component, error), []).append(root)
        self._acker.fail_all([(some, cause) for cause, some in fails.items()])
