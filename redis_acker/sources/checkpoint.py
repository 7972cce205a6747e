"""Which lines of a file are finished, kept in a file beside it."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from redis_acker.bolt import TaskContext
from redis_acker.durable import sync_directory
from redis_acker.errors import AckerError, BadInput
from redis_acker.sources.ranges import Ranges

HEAD_BYTES = 1024
"""By so many bytes at its beginning a file is recognised."""


class Checkpoint:
    """The checkpoint of one task. At any moment, power cuts included, the file holds a whole state, old or new."""

    def __init__(self, path: Path, context: TaskContext) -> None:
        """The first task keeps its state in path, the second in path.1, and so on."""
        self._first = path
        self._path = path.with_name(f"{path.name}.{context.task}") if context.task else path
        self._tasks = context.parallelism

    def load(self, head: bytes, size: int) -> Ranges:
        """What is finished of a file that begins so and has that size; nothing if there is no checkpoint."""
        own = _read(self._path)
        for path, state in ((self._first, _read(self._first)), (self._path, own)):
            if state and state["tasks"] != self._tasks:
                raise BadInput(
                    f"The checkpoint {path} was written with parallelism {state['tasks']}, not {self._tasks}: keep "
                    "that until the file is read, or remove the checkpoints to begin anew."
                )
        if own is None:
            return Ranges()
        head_size, head_crc = own["head"]
        if zlib.crc32(head[:head_size]) != head_crc or max((end for _, end in own["finished"]), default=0) > size:
            raise BadInput(
                f"The checkpoint {self._path} is of another file, or lines were removed from this one: name another "
                "checkpoint, or remove it to begin anew."
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


def _read(path: Path) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads(path.read_bytes())
        return {name: state[name] for name in ("tasks", "head", "finished")}
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"The checkpoint {path} cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, KeyError):
        raise BadInput(f"{path} is no checkpoint of a file of lines: name another file, or remove it.") from None
