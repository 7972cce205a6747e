"""Which lines of a file are finished, kept in a file beside it."""

from __future__ import annotations

import json
import os
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from redis_acker.components.component import TaskContext
from redis_acker.errors import AckerError, BadInput
from redis_acker.spouts.durable import sync_directory

HEAD_BYTES = 1024
"""How much of its beginning identifies a file."""


class Checkpoint:
    """The checkpoint of one task. At any moment, even after a power cut, the file holds one whole state, old or new."""

    def __init__(self, path: Path, context: TaskContext) -> None:
        """The first task keeps its state in path, the second in path.1, and so on."""
        self._first = path
        self._path = path.with_name(f"{path.name}.{context.task}") if context.task else path
        self._tasks = context.parallelism

    def load(self, head: bytes, size: int) -> Ranges:
        """What is finished of the file with this head and size; nothing if there is no checkpoint."""
        own = _read(self._path)
        for path, state in ((self._first, _read(self._first)), (self._path, own)):
            if state and state["tasks"] != self._tasks:
                raise BadInput(
                    f"The checkpoint {path} was written with parallelism {state['tasks']}, not {self._tasks}: keep "
                    "that until the file is read, or remove the checkpoints to start over."
                )
        if own is None:
            return Ranges()
        head_size, head_crc = own["head"]
        if zlib.crc32(head[:head_size]) != head_crc or max((end for _, end in own["finished"]), default=0) > size:
            raise BadInput(
                f"The checkpoint {self._path} belongs to another file, or lines were removed from this one: name "
                "another checkpoint, or remove it to start over."
            )
        return Ranges((start, end) for start, end in own["finished"])

    def save(self, head: bytes, finished: Ranges) -> None:
        state = {"tasks": self._tasks, "head": [len(head), zlib.crc32(head)], "finished": finished.to_list()}
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("w") as file:
                json.dump(state, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            sync_directory(self._path.parent)
        except OSError as error:
            raise AckerError(f"The checkpoint {self._path} cannot be written ({error.strerror}).") from None


class Ranges:
    """Disjoint ranges from start up to, not including, end. Ranges that touch become one."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._end_of: dict[int, int] = {}
        self._start_of: dict[int, int] = {}
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Adds a range that overlaps with no other."""
        if end in self._end_of:
            del self._starts[bisect_left(self._starts, end)]
            end = self._end_of.pop(end)
        if start in self._start_of:
            start = self._start_of.pop(start)
        else:
            insort(self._starts, start)
        self._end_of[start], self._start_of[end] = end, start

    def end_of(self, position: int) -> int | None:
        """The end of the range that holds the position; None if none does."""
        before = bisect_right(self._starts, position)
        end = self._end_of[self._starts[before - 1]] if before else 0
        return end if position < end else None

    def __contains__(self, position: int) -> bool:
        return self.end_of(position) is not None

    def to_list(self) -> list[tuple[int, int]]:
        return sorted(self._end_of.items())


def _read(path: Path) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads(path.read_bytes())
        return {name: state[name] for name in ("tasks", "head", "finished")}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"The checkpoint {path} cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{path} is not a checkpoint of a JSON lines file: name another file, or remove it.") from None
