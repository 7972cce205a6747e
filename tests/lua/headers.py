"""What a file of lua/ says about itself in the comment it opens with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from redis_acker.store.scripts import lua_folder

SHARD_KEYS = "as in lib/shard.lua"

_LINE = re.compile(r"-- (KEYS|ARGV)(?:\[(\d+)\])? +(.*)")
_NAMED = re.compile(r"(\w+|\.\.) +(\S.*)")


@dataclass
class Header:
    """The parts of a header, in the order in which they must come."""

    purpose: str = ""
    keys: dict[int, list[str]] = field(default_factory=dict)
    """Position -> name, type, meaning; empty for a script on the keys of a shard."""
    on_shard: bool = False
    args: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Position -> name, meaning."""
    returns: str = ""
    emits: str = ""

    @property
    def repeated(self) -> int:
        """How many arguments at the end are a group that may come again."""
        if not self.args:
            return 0
        last = max(self.args)
        group = re.search(r"(?:(\d+) (?:and|to) (\d+) )?repeated$", self.args[last][1])
        if not group or self.args[last][1].startswith("bytes: "):  # repeated inside of one argument
            return 0
        return int(group[2]) - int(group[1]) + 1 if group[1] else 1


def scripts() -> dict[str, str]:
    """Every script of lua/, by name."""
    return {path.stem: path.read_text() for path in sorted(folder().glob("*.lua"))}


def libraries() -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted((folder() / "lib").glob("*.lua"))}


def folder() -> Path:
    found = lua_folder()
    assert isinstance(found, Path)
    return found


def code(text: str) -> str:
    """The file without its comments."""
    return "\n".join(line.partition("--")[0] for line in text.splitlines())


def exports(library: str) -> list[str]:
    """The names that a library says others may use."""
    lines = re.findall(r"^-- exports: (.+)$", library.partition("\n\n")[0], re.MULTILINE)
    return [name for line in lines for name in line.split(", ")]


def header_lines(text: str) -> list[str]:
    """Without the lines that say what the file exports and needs, which come first."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if not line.startswith(("-- exports: ", "-- needs: ")))
    end = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    return lines[first:end]


def parse(text: str) -> Header:
    """Raises ValueError for a line that is not in its place or in its form."""
    header = Header()
    rest = header_lines(text)
    while rest and not rest[0].startswith(("-- KEYS", "-- ARGV", "-- Returns", "-- Emits")):
        header.purpose += rest.pop(0)[2:]
    while rest and (found := _LINE.fullmatch(rest[0])):
        _put(header, *found.groups())
        rest.pop(0)
    for name in ("Returns", "Emits"):
        if not rest or not rest[0].startswith(f"-- {name} "):
            raise ValueError(f"expected '-- {name}', found {rest[:1]}")
        setattr(header, name.lower(), rest.pop(0).removeprefix(f"-- {name}").strip())
    if rest:
        raise ValueError(f"nothing comes after Emits: {rest}")
    return header


def _put(header: Header, kind: str, position: str | None, text: str) -> None:
    if kind == "KEYS" and position is None:
        if text != SHARD_KEYS or header.keys or header.args:
            raise ValueError(f"KEYS without position are '{SHARD_KEYS}': {text}")
        header.on_shard = True
    elif kind == "KEYS":
        words = text.split(maxsplit=2)
        if header.args or len(words) != 3:
            raise ValueError(f"KEYS[n] come before ARGV, with name, type and meaning: {text}")
        header.keys[int(position or 0)] = words
    else:
        named = _NAMED.fullmatch(text)
        if position is None or named is None:
            raise ValueError(f"ARGV[n] with name and meaning: {text}")
        header.args[int(position)] = (named[1], named[2])
