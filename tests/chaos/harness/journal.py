"""The independent log: what processes say they did, each line in one write, so that a SIGKILL leaves whole lines."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any


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


def longest_gap_s(times_s: list[float]) -> float:
    return max((later - earlier for earlier, later in pairwise(times_s)), default=0.0)
