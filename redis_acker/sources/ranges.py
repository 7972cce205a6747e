"""A set of ranges of bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable


class Ranges:
    """Disjoint ranges from start up to, not including, end. Ranges that touch become one."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._end_of: dict[int, int] = {}
        self._start_of: dict[int, int] = {}
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Adds a range that overlaps with none."""
        if end in self._end_of:
            del self._starts[bisect_left(self._starts, end)]
            end = self._end_of.pop(end)
        if start in self._start_of:
            start = self._start_of.pop(start)
        else:
            insort(self._starts, start)
        self._end_of[start], self._start_of[end] = end, start

    def end_of(self, position: int) -> int | None:
        """The end of the range that the position is in: at its start, or further on if it was joined with another."""
        before = bisect_right(self._starts, position)
        end = self._end_of[self._starts[before - 1]] if before else 0
        return end if position < end else None

    def __contains__(self, position: int) -> bool:
        return self.end_of(position) is not None

    def to_list(self) -> list[tuple[int, int]]:
        return sorted(self._end_of.items())
