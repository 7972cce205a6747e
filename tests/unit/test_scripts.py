"""Loading lua/: a script and the libraries that its first line names."""

import hashlib

import pytest

from redis_acker.scripts import lua_folder, script, used_libraries
from tests.lua.headers import libraries, scripts


@pytest.mark.parametrize("name", scripts())
def test_a_script_is_its_libraries_in_their_order_and_then_itself(name: str) -> None:
    body = scripts()[name]
    found = script(name)
    parts = [*(libraries()[library] for library in used_libraries(body)), body]
    assert found.source == "\n".join(parts)
    assert found.sha == hashlib.sha1(found.source.encode()).hexdigest()
    assert found.name == name


def test_only_the_first_line_names_libraries() -> None:
    assert used_libraries("-- uses: shard, record\n-- uses: xor\n") == ["shard", "record"]
    assert used_libraries("-- Gives a spout its number.\n-- uses: xor\n") == []


def test_a_script_is_read_once() -> None:
    assert script("ack") is script("ack")


def test_a_script_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        script("no_such_script")


def test_lua_is_beside_the_package_or_inside_it() -> None:
    assert (lua_folder() / "ack.lua").is_file()
