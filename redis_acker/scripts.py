"""Loads lua/: one script per operation, put together with the libraries that its first line names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@dataclass(frozen=True)
class Script:
    """A Lua script as the server gets it."""

    name: str
    source: str
    sha: str


def lua_folder() -> Traversable:
    """Inside the package in a wheel (zipped ones too), at the top of the tree in an editable install."""
    packaged = resources.files("redis_acker") / "lua"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parent.parent / "lua"


@cache
def script(name: str) -> Script:
    body = (lua_folder() / f"{name}.lua").read_text(encoding="utf-8")
    libraries = [
        (lua_folder() / "lib" / f"{library}.lua").read_text(encoding="utf-8") for library in used_libraries(body)
    ]
    source = "\n".join([*libraries, body])
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def used_libraries(body: str) -> list[str]:
    first_line = body.partition("\n")[0]
    prefix = "-- uses: "
    return first_line.removeprefix(prefix).split(", ") if first_line.startswith(prefix) else []
