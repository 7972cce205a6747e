"""Loads lua/: one script per operation, put together with the libraries that it needs."""

from __future__ import annotations

import hashlib
import re
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
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "lua"


@cache
def script(name: str) -> Script:
    source = assemble((lua_folder() / f"{name}.lua").read_text(encoding="utf-8"))
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@cache
def every_script() -> tuple[Script, ...]:
    """All scripts of this version, by name."""
    names = (path.name.removesuffix(".lua") for path in lua_folder().iterdir() if path.name.endswith(".lua"))
    return tuple(script(name) for name in sorted(names))


def assemble(body: str) -> str:
    """A piece of Lua behind the libraries that it needs."""
    return "\n".join([*map(_library, libraries_for(body)), body])


def libraries_for(text: str) -> list[str]:
    """The libraries that a file needs, and those that they need: each comes after all it needs itself."""
    order: list[str] = []
    for name in needed_libraries(text):
        order += [one for one in (*libraries_for(_library(name)), name) if one not in order]
    return order


def needed_libraries(text: str) -> list[str]:
    """The libraries whose names a file uses, as it says before its first line of code."""
    header = text.partition("\n\n")[0]
    return [name for line in re.findall(r"^-- needs: (.+)$", header, re.MULTILINE) for name in line.split(", ")]


@cache
def _library(name: str) -> str:
    return (lua_folder() / "lib" / f"{name}.lua").read_text(encoding="utf-8")
