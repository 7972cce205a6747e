"""The file that a drain writes. It is its own journal: the same drain again goes on where the last one stopped."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from redis_acker.cli.failure_lines import START, as_line, read_lines
from redis_acker.durable import sync_directory
from redis_acker.errors import AckerError, BadInput
from redis_acker.failures import FailedRoot
from redis_acker.owners import Owner


class DrainFile:
    """Appends lines durably. At any moment, power cuts included, it holds whole lines and perhaps a half one, which is
    cut off when it is opened again."""

    def __init__(self, path: Path, namespace: str) -> None:
        """Raises BadInput for a file that a drain has not written, or that another one is writing."""
        self.path, self._namespace = path, namespace
        self.cut_bytes = 0
        """Length of the half line that was cut off."""
        self._known: set[int] | None = None
        try:
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise BadInput(f"{path} cannot be written ({error.strerror}): name another file.") from None
        try:
            self._lock()
            self._check()
            self._cut()
            sync_directory(path.absolute().parent)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> DrainFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    @property
    def owner(self) -> Owner:
        return Owner.here(str(self.path.absolute()), os.fstat(self._file.fileno()))

    def write(self, roots: Iterable[FailedRoot]) -> int:
        """Appends a line for each root and waits until they are on the disk. Returns how many."""
        lines = [as_line(self._namespace, root) for root in roots]
        data = memoryview("".join(f"{line}\n" for line in lines).encode())
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise AckerError(
                f"{self.path} cannot be written ({error.strerror}): make room and run the same command again, nothing "
                "is lost."
            ) from None
        return len(lines)

    def new_ones(self, roots: Iterable[FailedRoot]) -> list[FailedRoot]:
        """Those roots of which an earlier drain has not written the line."""
        if self._known is None:
            self._file.seek(0)
            with os.fdopen(os.dup(self._file.fileno()), "rb") as file:
                found = read_lines(self._namespace, file)
                self._known = {one.root for _, one in found if isinstance(one, FailedRoot)}
        return [root for root in roots if root.root not in self._known]

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(
                f"{self.path} is being written by another drain: wait for it, or name another file."
            ) from None

    def _check(self) -> None:
        """Refuses what is no such file before a byte of it is touched."""
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise BadInput(
                f"{self.path} is no regular file, so nothing in it is durable: leave out --out, or name one."
            )
        self._file.seek(0)
        head, expected = self._file.read(len(START)), START.encode()
        if head != expected[: len(head)]:
            raise BadInput(f"{self.path} exists and was not written by `redis-acker drain`: name another file.")

    def _cut(self) -> None:
        size = at = self._file.seek(0, os.SEEK_END)
        while at > 0:
            start = max(0, at - 65_536)
            self._file.seek(start)
            found = self._file.read(at - start).rfind(b"\n")
            if found >= 0:
                at = start + found + 1
                break
            at = start
        self.cut_bytes = size - at
        if self.cut_bytes:
            self._file.truncate(at)
            os.fsync(self._file.fileno())
