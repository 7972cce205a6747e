"""Every script says in its header what it does and takes, and that is so."""

import re
from pathlib import Path
from typing import Any

import pytest

import redis_acker
from redis_acker.store.keys import ShardKeys
from redis_acker.store.scripts import assemble
from redis_acker.testing import fake_redis
from tests.lua.headers import Header, code, libraries, parse, scripts

SHARD_ARGS = 3
"""Arguments that come first in scripts on the keys of a shard."""

MOST_LINES = 80

FORBIDDEN = {"KEYS", "SCAN", "RANDOMKEY", "DBSIZE", "FLUSHDB", "FLUSHALL", "SORT", "SELECT", "EVAL", "EVALSHA"}
"""Commands that look at, or reach, more than the keys that were declared."""

UNBOUNDED = {"HGETALL", "HKEYS", "HVALS", "SMEMBERS", "LRANGE", "XRANGE", "XREVRANGE", "ZRANGE"}
"""Commands whose work grows with what is pending."""

WITHOUT_KEY = {"INFO", "TIME"}
KEY_LATER = {"BITOP": 2, "XGROUP": 2, "XINFO": 2}
"""Position of the first key among the arguments, where that is not the first."""

SCRIPTS, LIBRARIES = scripts(), libraries()
EVERY_FILE = {**SCRIPTS, **{f"lib/{name}": text for name, text in LIBRARIES.items()}}


def documented(name: str) -> Header:
    return parse(SCRIPTS[name])


def used_positions(text: str) -> set[int]:
    """Positions of ARGV that a script reads: alone, or in a loop over groups of arguments."""
    body = code(text)
    found = {int(position) for position in re.findall(r"\b(?:args|ARGV)\[(\d+)\]", body)}
    for start, step in re.findall(r"for \w+ = (\d+), #(?:args|ARGV)(?:, (\d+))? do", body):
        found |= set(range(int(start), int(start) + int(step or 1)))
    return found


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Command and arguments, as they are written, of every call to the server."""
    found = re.findall(r"\bp?call\('(\w+)'((?:, *[^,()]*(?:\([^()]*\))?[^,()]*)*)\)", code(text))
    return [(name, [one.strip() for one in rest.split(",")[1:]]) for name, rest in found]


def names_in_python() -> set[str]:
    package = Path(redis_acker.__file__).parent
    text = "\n".join(path.read_text() for path in package.rglob("*.py"))
    return set(re.findall(r"(?:Command\.call|_on_blocks|_run_batches)\(\s*\"([a-z_]+)\"", text))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_opens_with_a_whole_header(name: str) -> None:
    header = documented(name)
    assert re.match(r" [A-Z].+\.", header.purpose)
    assert header.on_shard != bool(header.keys)
    assert sorted(header.keys) == list(range(1, len(header.keys) + 1))
    assert {kind for _, kind, _ in header.keys.values()} <= {"hash", "string", "stream", "set", "zset", "list"}
    assert header.returns
    assert header.emits


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_documented_arguments_are_those_that_are_used(name: str) -> None:
    header = documented(name)
    assert set(header.args) == used_positions(SCRIPTS[name])
    first = SHARD_ARGS + 1 if header.on_shard else 1
    assert sorted(header.args) == list(range(first, first + len(header.args)))


@pytest.mark.parametrize("name", [name for name in SCRIPTS if not documented(name).on_shard])
def test_the_documented_keys_are_those_that_are_used(name: str) -> None:
    used = {int(position) for position in re.findall(r"KEYS\[(\d+)\]", code(SCRIPTS[name]))}
    assert used == set(documented(name).keys)


def test_every_script_is_called_and_every_script_called_is_there() -> None:
    assert names_in_python() == set(SCRIPTS)


def test_every_file_is_short() -> None:
    stand_ins = (Path(redis_acker.__file__).parent / "testing" / "lua").glob("*.lua")
    files = {**EVERY_FILE, **{path.name: path.read_text() for path in stand_ins}}
    assert len(files) > len(EVERY_FILE)
    assert [name for name, text in files.items() if len(text.splitlines()) > MOST_LINES] == []


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_script_neither_searches_the_keyspace_nor_reads_what_is_unbounded(name: str) -> None:
    bounded = {"HVALS"} if name == "spout" else set()  # there are at most 4095 spouts
    found = {command for command, args in commands(EVERY_FILE[name]) if "'COUNT'" not in args}
    assert not found & (FORBIDDEN | UNBOUNDED - bounded)
    assert "redis.call(cmd" not in EVERY_FILE[name]


@pytest.mark.parametrize("name", EVERY_FILE)
def test_no_key_is_spelt_in_lua(name: str) -> None:
    """A key is one of KEYS, whole: neither a literal nor put together."""
    for command, args in commands(EVERY_FILE[name]):
        if command not in WITHOUT_KEY:
            key = args[KEY_LATER.get(command, 1) - 1]
            assert re.fullmatch(r"keys\[[\w +*-]+\]|[a-z_]+", key), f"{command} {key}"


def test_every_call_to_the_server_is_seen_by_these_tests() -> None:
    """A call in another form would slip through the tests above."""
    for name, text in EVERY_FILE.items():
        calls = re.findall(r"\bp?call\(", re.sub(r"\bredis\.", "", code(text)))
        assert len(calls) == len(commands(text)), name
        tolerant = re.findall(r"\bpcall\(.*", code(text))
        assert all(one.startswith(("pcall('HINCRBY', counters, ", "pcall('INFO', ")) for one in tolerant), (
            "only what is counted may be lost, and only what some servers do not tell may be unknown"
        )


# -- the keys of a shard -------------------------------------------------------------------------------------------


def catalogue() -> dict[str, str]:
    """Names of the keys in lib/shard.lua and their types, in order."""
    row = r"^-- (?:KEYS\S*(?: KEYS\S*| \.\.\])?| {7}\.\.) +(\w+) +(hash|string|stream) "
    return dict(re.findall(row, LIBRARIES["shard"], re.MULTILINE))


@pytest.mark.parametrize("buckets", [2, 3, 7])
def test_python_declares_the_keys_in_the_order_of_the_catalogue(buckets: int) -> None:
    keys = ShardKeys("ns", 0, buckets)
    amounts = {"meta": 1, "scratch": 2, "quarantine": 1, "counters": 1, "finished": buckets, "streams": 4}
    amounts |= dict.fromkeys(("heads", "vals", "ids"), buckets + 1)
    declared = [key.removeprefix(keys.prefix).partition(":")[0] for key in keys.with_streams([1, 4])]
    declared[-4:] = ["streams"] * 4
    assert declared == [name for name in catalogue() for _ in range(amounts[name])]
    assert [key.removeprefix(keys.prefix) for key in keys.with_streams([1, 4])[-4:]] == [
        "completions:1",
        "failures:1",
        "completions:4",
        "failures:4",
    ]


@pytest.mark.parametrize("buckets", [2, 3, 7])
def test_lua_finds_each_key_where_python_put_it(buckets: int) -> None:
    look = """-- needs: shard
    return { meta, scratch_a, scratch_b, counters,
      keys[HEADS + NURSERY], keys[HEADS + EXPIRED], keys[VALS + NURSERY], keys[VALS + EXPIRED],
      keys[IDS + NURSERY], keys[IDS + EXPIRED], keys[FINISHED], keys[FINISHED + buckets - 1],
      keys[stream_of(1)], keys[stream_of(1) + 1], keys[stream_of(4095)], keys[stream_of(4095) + 1] }"""
    keys = ShardKeys("ns", 0, buckets)
    declared = keys.with_streams([1, 4095])
    args: list[Any] = [buckets, "", b"\x00\x01\x0f\xff"]
    found: Any = fake_redis().eval(assemble(look), len(declared), *declared, *args)
    names = [key.decode().removeprefix(keys.prefix) for key in found]
    ages = ["heads:0", "heads:expired", "vals:0", "vals:expired", "ids:0", "ids:expired"]
    streams = ["completions:1", "failures:1", "completions:4095", "failures:4095"]
    assert names == [
        "meta",
        "scratch:a",
        "scratch:b",
        "counters",
        *ages,
        "finished:0",
        f"finished:{buckets - 1}",
        *streams,
    ]
    assert keys.expired_heads == f"{keys.prefix}heads:expired"


def test_the_arguments_that_come_first_are_those_of_the_catalogue() -> None:
    rows = re.findall(r"^-- ARGV\[(\d)\] +(\w+) ", LIBRARIES["shard"], re.MULTILINE)
    assert [name for _, name in rows] == ["buckets", "now_ms", "spouts"]
    read = set.union(*(used_positions(text) for text in LIBRARIES.values()))
    assert read == {int(position) for position, _ in rows} == {1, 2, 3}
