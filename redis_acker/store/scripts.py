"""Reads lua/: one script per operation, put together with the libraries that it needs. Brings them to the servers: one
that restarts, or takes over from another, knows none of them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import redis
from redis import exceptions as redis_errors

from redis_acker.errors import ScriptsMissing
from redis_acker.store.connect import Servers

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


@dataclass(frozen=True)
class Loaded:
    """What a server did not know, and has been given."""

    server: str
    scripts: int
    error: Exception | None = None
    """Why the scripts are not there."""


class Loader:
    """Loads scripts as long as this user may."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._may_load = True

    def load(self, client: redis.Redis, scripts: list[Script]) -> bool:
        """False if this user may not. Raises what redis-py raises if the server cannot be reached."""
        if self._may_load:
            try:
                for one in scripts:
                    client.execute_command("SCRIPT LOAD", one.source)
            except redis_errors.NoPermissionError:
                self._may_load = False  # asking again would only fill the server's ACL log
        return self._may_load

    def load_everywhere(self) -> list[Loaded]:
        """Loads all scripts on each server that does not know them."""
        if not self._may_load:
            return []
        try:
            nodes = self._servers.nodes()
        except (redis.RedisError, redis_errors.RedisClusterException, OSError) as error:
            return [Loaded(self._servers.describe(0), 0, error)]
        return [self._complete(server, client) for server, client in nodes]

    def _complete(self, server: str, client: redis.Redis) -> Loaded:
        scripts = every_script()
        try:
            known = client.execute_command("SCRIPT EXISTS", *(one.sha for one in scripts))
            missing = [one for one, is_known in zip(scripts, known, strict=True) if not is_known]
            if not self.load(client, missing):
                return Loaded(server, 0, redis_errors.NoPermissionError("this user may not load scripts"))
        except redis_errors.NoPermissionError as error:
            self._may_load = False
            return Loaded(server, 0, error)
        except (redis.RedisError, OSError) as error:
            return Loaded(server, 0, error)
        return Loaded(server, len(missing))


def scripts_missing(server: str, script: str, within_s: float) -> ScriptsMissing:
    return ScriptsMissing(
        f"{server} does not know the script {script!r}, this user may not load it, and nobody else did within "
        f"{within_s:g} s: start a rotator or a driver of this version, or run `redis-acker scripts load` as a user who "
        "may load scripts."
    )
