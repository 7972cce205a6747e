"""Messages from a file with one JSON value per line."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from redis_acker.components.component import TaskContext
from redis_acker.components.spout import Message, Spout
from redis_acker.errors import BadInput
from redis_acker.spouts.checkpoint import HEAD_BYTES, Checkpoint
from redis_acker.spouts.records import WHOLE, read_record
from redis_acker.store.message_ids import MessageId


class JsonLinesSpout(Spout):
    """Hands out the lines of a file. The id of a line is the position of its first byte.

    A checkpoint file says which lines are finished: after a restart, even after a SIGKILL, none of them is handed out
    again. A line that is not JSON becomes a dead letter. Empty lines are skipped. Tasks share the lines, and each has
    a checkpoint of its own.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        checkpoint: str | os.PathLike[str],
        fields: Sequence[str] | None = None,
        follow: bool = False,
    ) -> None:
        """fields: names of members of each line's object, one value each. Without: one value, the whole line.

        follow: keeps reading lines as they are appended, each when its newline is there. Without, the file is read up
        to its end at the start, whether or not a newline is there.
        """
        self.fields = WHOLE if fields is None else fields
        self._names = fields
        self._path, self._checkpoint_path = Path(path), Path(checkpoint)
        self._follow = follow

    def open(self, context: TaskContext) -> None:
        self._context = context
        try:
            self._file = self._path.open("rb")
            self._size = os.fstat(self._file.fileno()).st_size
            self._head = self._file.read(HEAD_BYTES)
        except OSError as error:
            raise BadInput(f"{self._path} cannot be read ({error.strerror}): name a file of JSON lines.") from None
        self._checkpoint = Checkpoint(self._checkpoint_path, context)
        self._finished = self._checkpoint.load(self._head, self._size)
        self._position = 0
        self._end_of: dict[MessageId, int] = {}
        """Where the lines end that were handed out and are not finished."""
        self._again: dict[MessageId, None] = {}
        self._changed = True
        self.commit()  # fails now if it cannot be written

    def next_batch(self, limit: int) -> list[Message]:
        batch: list[Message] = []
        while self._again and len(batch) < limit:
            start = int(next(iter(self._again)))
            del self._again[start]
            batch.append(self._hand_out(start, self._read_line(start)))
        while len(batch) < limit and (message := self._next_new()):
            batch.append(message)
        return batch

    def ack(self, message_id: MessageId) -> None:
        start = int(message_id)
        end = self._end_of.pop(start, None)
        if end is None:  # it was handed out before a restart
            if start in self._finished:
                return
            end = start + len(self._read_line(start))
        self._finished.add(start, end)
        self._changed = True

    def fail(self, message_id: MessageId) -> None:
        self._again[message_id] = None

    def commit(self) -> None:
        if not self._changed:
            return
        if len(self._head) < HEAD_BYTES:
            self._file.seek(0)
            self._head = self._file.read(HEAD_BYTES)
        self._checkpoint.save(self._head, self._finished)
        self._changed = False

    def close(self) -> None:
        if hasattr(self, "_file"):  # otherwise it could not be opened
            self._file.close()

    def _next_new(self) -> Message | None:
        """The next line of this task; None if there is none yet."""
        while True:
            self._position = self._finished.end_of(self._position) or self._position
            line = self._read_line(self._position)
            if not line or (self._follow and not line.endswith(b"\n")):
                self._check_file()
                return None
            start, self._position = self._position, self._position + len(line)
            if start in self._end_of:
                continue  # handed out before its turn, for a replay
            if not line.isspace() and zlib.crc32(b"%d" % start) % self._context.parallelism == self._context.task:
                return self._hand_out(start, line)
            self._finished.add(start, self._position)

    def _read_line(self, start: int) -> bytes:
        self._file.seek(start)
        return self._file.readline(-1 if self._follow else max(0, self._size - start))

    def _hand_out(self, start: int, line: bytes) -> Message:
        self._end_of[start] = start + len(line)
        return read_record(start, line, json.loads, self._names, f"{self._path} at byte {start}")

    def _check_file(self) -> None:
        """Refuses to wait for lines of a file that is gone."""
        if not self._follow:
            return
        try:
            found = self._path.stat()
        except OSError as error:
            raise BadInput(f"{self._path} can no longer be read ({error.strerror}).") from None
        if found.st_ino != os.fstat(self._file.fileno()).st_ino or found.st_size < self._position:
            raise BadInput(f"{self._path} was replaced or truncated while it was followed: lines may only be appended.")
