"""A set of ranges of bytes."""

from __future__ import annotations

from collections.abc import Iterable


class Ranges:
    """Disjoint ranges from start up to, not including, end. Ranges that touch become one."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._end_of: dict[int, int] = {}
        self._start_of: dict[int, int] = {}
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Adds a range that overlaps with none."""
        start = self._start_of.pop(start, start)
        end = self._end_of.pop(end, end)
        self._end_of[start], self._start_of[end] = end, start

    def end_of(self, start: int) -> int | None:
        """The end of the range that begins there."""
        return self._end_of.get(start)

    def __contains__(self, position: int) -> bool:
        return any(start <= position < end for start, end in self._end_of.items())

    def to_list(self) -> list[tuple[int, int]]:
        return sorted(self._end_of.items())
