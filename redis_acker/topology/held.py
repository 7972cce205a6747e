"""Tuples that a bolt was given and has not finished."""

from __future__ import annotations

from collections.abc import Iterator

from redis_acker.components.tuples import Tuple

HELD_LIMIT = 10_000
"""Most roots of unfinished tuples that a task remembers, to name the bolt when they time out."""

CLEAN_AFTER = 500
"""Tuples that are added before finished ones are looked for."""


class HeldTuples:
    """Tuples that a bolt will finish later, or has forgotten. One thread adds, others ask."""

    def __init__(self) -> None:
        self._by_root: dict[int, list[Tuple]] = {}
        self._size, self._clean_at = 0, CLEAN_AFTER

    def add(self, tup: Tuple) -> None:
        for root in tup.anchors:
            self._by_root.setdefault(root, []).append(tup)
        self._size += 1
        if self._size >= self._clean_at:
            self._clean()

    def all(self) -> Iterator[Tuple]:
        """Those that are not finished; one with several roots comes several times."""
        # list() copies in one step, while the other thread may add.
        return (tup for tuples in list(self._by_root.values()) for tup in list(tuples) if not tup.outcome)

    def _clean(self) -> None:
        """Drops what has been finished since, and the oldest of the rest if there are too many."""
        held = {root: [tup for tup in tuples if not tup.outcome] for root, tuples in self._by_root.items()}
        held_roots = [root for root, tuples in held.items() if tuples]
        self._by_root = {root: held[root] for root in held_roots[-HELD_LIMIT:]}
        self._size = sum(map(len, self._by_root.values()))
        self._clean_at = 2 * self._size + CLEAN_AFTER
