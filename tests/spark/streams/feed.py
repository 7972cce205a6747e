"""Files that a stream reads, and a sink that notes what it was given. Both are used in processes of their own too."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Row

SCHEMA = "id string, number long"
SPOUT = "numbers"
NOW = {"availableNow": True}


class Feed:
    """A directory: files come in, the checkpoint is kept beside them, and the sink writes its log there."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.input = self.directory / "in"
        self.input.mkdir(exist_ok=True)

    @property
    def checkpoint(self) -> str:
        return str(self.directory / "checkpoint")

    def put(self, name: str, numbers: Iterable[int]) -> None:
        self.put_rows(name, ({"id": f"m{n}", "number": n} for n in numbers))

    def put_rows(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """A file that appears as a whole."""
        hidden = self.directory / f".{name}"
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        hidden.rename(self.input / name)

    def sink(self, row: Row) -> None:
        """Each row is a line, written at once."""
        file = os.open(self.directory / "sunk", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, f"{row.number}\n".encode())
        finally:
            os.close(file)

    def written(self) -> Counter[int]:
        """The numbers in the files that write() has put into `out`."""
        files = (self.directory / "out").glob("part-*")
        return Counter(json.loads(line)["number"] for file in files for line in file.read_text().splitlines())

    def left(self) -> list[bytes]:
        """The anchors of all rows that have left for another application."""
        return [bytes.fromhex(line) for line in (self.directory / "left").read_text().split()]

    def sunk(self) -> Counter[int]:
        path = self.directory / "sunk"
        return Counter(int(line) for line in path.read_text().split()) if path.exists() else Counter()
