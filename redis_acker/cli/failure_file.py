"""Failed roots as JSON lines, which `drain` writes and `replay` reads, and the file that `drain` writes them to."""

from __future__ import annotations

import fcntl
import json
import os
import re
import reprlib
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from redis_acker.cli.output import SCHEMA
from redis_acker.errors import AckerError, BadInput
from redis_acker.retries.failed_roots import FailedRoot
from redis_acker.retries.withdrawals import Owner
from redis_acker.spouts.durable import sync_directory
from redis_acker.store.message_ids import MAX_ATTEMPT, id_from_json, id_to_json
from redis_acker.store.streams import HISTORY
from redis_acker.views.texts import root_text

KIND = "failure"

_LONGEST_LINE = 100_000
"""In bytes. The longest that drain writes have a quarter of it, all of their texts escaped."""

_MOST = 1 << 53
"""Numbers are below: counts, times and ages."""

START = f'{{"schema": {SCHEMA}, "kind": "{KIND}", "namespace": '
"""How every line begins."""

_TYPES: dict[str, type] = {
    "spout": str,
    "root": str,
    "attempt": int,
    "reason": str,
    "component": str,
    "error": str,
    "fatal": bool,
    "age_ms": int,
    "at_ms": int,
    "shard": int,
    "entry": str,
}


# -- lines -----------------------------------------------------------------------------------------------------------


def as_line(namespace: str, failed: FailedRoot) -> str:
    data = {**vars(failed), "message_id": id_to_json(failed.message_id), "root": root_text(failed.root)}
    return json.dumps({"schema": SCHEMA, "kind": KIND, "namespace": namespace, **data})


def parse_line(namespace: str, line: bytes) -> FailedRoot:
    """Raises BadInput for a line that drain has not written for this namespace; its text is only the reason."""
    try:
        data: Any = json.loads(line)
    except RecursionError:
        raise BadInput("is nested too deeply") from None
    except ValueError:
        why = "is not JSON" if line.endswith(b"\n") else "is cut off"
        raise BadInput(f"{why}, it ends with {line.rstrip()[-20:].decode(errors='backslashreplace')!r}") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise BadInput("is not a failure as `redis-acker drain` writes it")
    if data.get("schema") != SCHEMA:
        raise BadInput(f"has schema {reprlib.repr(data.get('schema'))}, but this version reads {SCHEMA}")
    if data.get("namespace") != namespace:
        raise BadInput(f"is from namespace {reprlib.repr(data.get('namespace'))}, not {namespace!r}")
    for name, kind in _TYPES.items():
        if type(data.get(name)) is not kind:
            raise BadInput(f"needs {name} of type {kind.__name__}, not {reprlib.repr(data.get(name))}")
        if kind is int and not 0 <= data[name] < _MOST:
            raise BadInput(f"has {name} {reprlib.repr(data[name])}, which is not from 0 to 2**53")
    if not 1 <= data["attempt"] <= MAX_ATTEMPT:
        raise BadInput(f"has attempt {data['attempt']}, which is not from 1 to {MAX_ATTEMPT}")
    if not re.fullmatch("0x[0-9a-f]{16}", data["root"]):
        raise BadInput(f"has an invalid root: {reprlib.repr(data['root'])} is not 0x and 16 hex digits")
    try:
        message_id = id_from_json(data.get("message_id"))
    except BadInput as error:
        raise BadInput(f"has an invalid message id: {error}") from None
    history = data.get("history", "")  # files of earlier versions have none
    if not isinstance(history, str) or not HISTORY.fullmatch(history):
        raise BadInput(f"has history {reprlib.repr(history)}, which drain never writes")
    rest = {name: data[name] for name in _TYPES if name != "root"} | {"history": history}
    return FailedRoot(message_id=message_id, root=int(data["root"], 16), **rest)


def read_lines(namespace: str, file: IO[bytes]) -> Iterator[tuple[int, FailedRoot | BadInput]]:
    """The lines of a file with their numbers: what they say, or why they cannot be used. Skips empty ones."""
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            yield number, BadInput(f"is longer than {_LONGEST_LINE} bytes, which drain never writes")
        elif not line.isspace():
            try:
                yield number, parse_line(namespace, line)
            except BadInput as error:
                yield number, error


# -- the file --------------------------------------------------------------------------------------------------------


class FailureFile:
    """The file that a drain writes. It is its own journal: the same drain, run again, continues where it stopped.

    Appends lines durably. At any moment, even after a power cut, it holds whole lines and perhaps half a line at the
    end, which is cut off when the file is opened again.
    """

    def __init__(self, path: Path, namespace: str) -> None:
        """Raises BadInput for a file that no drain has written, or that another drain is writing."""
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

    def __enter__(self) -> FailureFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    @property
    def owner(self) -> Owner:
        return Owner.here(str(self.path.absolute()), os.fstat(self._file.fileno()))

    def write(self, roots: Iterable[FailedRoot]) -> None:
        """Appends a line for each root, and waits until they are on disk."""
        data = memoryview("".join(f"{as_line(self._namespace, root)}\n" for root in roots).encode())
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise AckerError(
                f"{self.path} cannot be written ({error.strerror}): make room and run the same command again; nothing "
                "is lost."
            ) from None

    def new_ones(self, roots: Iterable[FailedRoot]) -> list[FailedRoot]:
        """Those roots whose line an earlier drain has not written."""
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
        """Refuses any other file before a byte of it is touched."""
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise BadInput(
                f"{self.path} is not a regular file, so nothing in it is durable: name one, or leave out --out."
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
