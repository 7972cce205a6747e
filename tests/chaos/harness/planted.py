"""Bugs to be planted: the harness is worth nothing if it does not notice them."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from redis_acker.store import scripts
from spark_integration.runs import books

BUGS = {
    "token ignored": ("lib/tokens.lua", "then return true end", "then return false end"),
    "completion before all acks": ("lib/acks.lua", "if zeros and #zeros == 0 then return end", "zeros = nil"),
    "drain deletes and does not tell": (
        "lib/changes.lua",
        "if cause.reason then",
        "if cause.reason == 'timeout' and now_ms() % 3 == 0 then\n      elseif cause.reason then",
    ),
    "done mark without ownership": (
        "keep_portion.lua",
        "if partition.done < offset or partition.rows == 0 or partition.first ~= first then",
        "if partition.done < offset or partition.rows == 0 then",
    ),
    "ack at the end of a truncated input": (
        "books.py",
        "if (batch.num_rows, end.sum) != (rows, portion.sum):",
        "rows = batch.num_rows\n                if False:",
    ),
    "expired bucket dropped": (
        "rotate.lua",
        "local kept = 0",
        "call('UNLINK', keys[HEADS + EXPIRED], keys[VALS + EXPIRED])\nlocal kept = 0",
    ),
}
"""What is wrong -> the Lua file, or books.py of the tasks, what stands there, and what takes its place."""


def begin(folder: Path, bug: str) -> None:
    """What a process of a load does first: its log goes to a file, and its scripts get the bug, if there is one."""
    logging.basicConfig(filename=folder / "log")
    if bug:
        _plant(bug, folder)


def _plant(bug: str, folder: Path) -> None:
    file, old, new = BUGS[bug]
    if file.endswith(".py"):
        text = Path(books.__file__).read_text()
        assert text.count(old) == 1, f"{file} has changed: plant the bug {bug!r} elsewhere"
        exec(compile(text.replace(old, new), books.__file__, "exec"), vars(books))
        return
    copy = Path(tempfile.mkdtemp(dir=folder))
    shutil.copytree(str(scripts.lua_folder()), copy, dirs_exist_ok=True)
    text = (copy / file).read_text()
    assert text.count(old) == 1, f"{file} has changed: plant the bug {bug!r} elsewhere"
    (copy / file).write_text(text.replace(old, new))
    scripts.lua_folder = lambda: copy
