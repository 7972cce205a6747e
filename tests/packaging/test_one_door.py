"""The store is reached through one door: only it sends commands, so that every key and argument is spelt in one place.

The door is store/shards*.py, with the handle for a hash that it gives out, over store/transport.py and connect.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

DOOR = ("shards", "hashes", "transport", "scripts", "connect")
"""How the modules of the store begin that send commands."""

OTHERS = {
    "redis_acker/spouts/redis_stream.py": "reads a stream of the user's, which is no part of the store",
    "redis_acker/spouts/user_streams.py": "reads streams of the user's, and keeps notes beside them",
    "redis_acker/spouts/stream_writes.py": "writes streams of the user's, and keeps notes beside them",
    "redis_acker/views/probes.py": "must give up at once where the door tries again",
    "redis_acker/views/servers.py": "asks servers about themselves, also those that refuse or are down",
    "redis_acker/cli/bench.py": "compares the store with plain HSETs",
    "redis_acker/testing/acker.py": "stands between the door and the server",
    "redis_acker/testing/fake.py": "makes a fake server ready",
}
"""Modules that send commands all the same, and why."""

SENDING = {"execute_command", "send_command", "send_packed_command", "pipeline", "connection_pool", "run_one", "eval"}
"""Attributes through which commands are sent."""


def sources() -> dict[str, str]:
    paths = (path for top in ("redis_acker", "spark_integration") for path in (ROOT / top).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def sends(text: str) -> Iterator[str]:
    """What a module does that sends a command."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "redis_acker.store.transport":
            names = {name.name for name in node.names} & {"Command", "Transport"}
            yield from (f"{node.lineno}: imports {name}" for name in sorted(names))
        elif isinstance(node, ast.Attribute) and node.attr in SENDING:
            yield f"{node.lineno}: uses {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_what, name = ast.unparse(node.func.value), node.func.attr
            if name == "ask" and of_what.endswith("shards"):
                yield f"{node.lineno}: calls {of_what}.ask() instead of a method with a name"
            elif name == "run" and of_what.endswith("transport"):
                yield f"{node.lineno}: calls {of_what}.run()"


OPENS_THE_DOOR = {
    "redis_acker/store/acker.py": "Transport",
    "redis_acker/store/namespace.py": "Transport",
    "redis_acker/cli/scripts.py": "Transport",
}
"""Modules that make a transport, or pass it on to the door, and send nothing themselves."""


def complaints(found: dict[str, str]) -> list[str]:
    return [
        f"{name}:{wrong}"
        for name, text in sorted(found.items())
        if name not in OTHERS and not name.startswith(tuple(f"redis_acker/store/{one}" for one in DOOR))
        for wrong in sends(text)
        if not wrong.endswith(f"imports {OPENS_THE_DOOR.get(name)}")
    ]


def test_only_the_door_to_the_shards_sends_commands() -> None:
    assert complaints(sources()) == []


def test_every_exception_is_one() -> None:
    found = sources()
    assert [name for name in OTHERS if not list(sends(found[name]))] == []


@pytest.mark.parametrize(
    "text",
    [
        "from redis_acker.store.transport import Command",
        "acker.shards.ask(0, 'GET', key)",
        "self._shards.ask(0, 'GET', key)",
        "acker.shards.transport.run(commands)",
        "transport.run_one(command)",
        "client.execute_command('GET', key)",
        "client.pipeline()",
        "client.eval(script, 0)",
    ],
)
def test_a_command_past_the_door_is_found(text: str) -> None:
    assert complaints({"redis_acker/views/new.py": text})
    assert complaints({"redis_acker/store/streams.py": text})
    assert complaints({"redis_acker/store/shards_more.py": text}) == []
