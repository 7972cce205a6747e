"""The independent log: what processes say they did, each line in one write, so that a SIGKILL leaves whole lines."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from redis_acker.store.ids import U64Array


class Journal:
    """Appends lines. Several processes may write to one file: lines are in the order in which they were written."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, *facts: Any) -> None:
        os.write(self._file, json.dumps([what, time.time(), *facts]).encode() + b"\n")


def read(path: Path) -> Iterator[tuple[str, float, list[Any]]]:
    """What was noted, when, and the facts."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        what, at_s, *facts = json.loads(line)
        yield what, at_s, facts


def as_runs(numbers: U64Array) -> list[list[int]]:
    """Numbers as runs of neighbours, first and count of each: a line about 700 roots has some 40 of them."""
    if not len(numbers):
        return []
    ordered = np.sort(numbers)
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 2) != 1)
    counts = np.diff(starts, append=len(ordered))
    return [[int(first), int(count)] for first, count in zip(ordered[starts], counts, strict=True)]


def from_runs(runs: list[list[int]]) -> U64Array:
    firsts, counts = np.array(runs, dtype=np.uint64).reshape(-1, 2).T
    ends = np.cumsum(counts)
    return np.repeat(firsts - (ends - counts), counts.astype(np.int64)) + np.arange(counts.sum(), dtype=np.uint64)


def longest_gap_s(times_s: list[float]) -> float:
    return max((later - earlier for earlier, later in pairwise(times_s)), default=0.0)
