"""Loading lua/: a script and the libraries that it needs."""

import hashlib

import pytest

from redis_acker.store.scripts import assemble, libraries_for, lua_folder, needed_libraries, script
from tests.lua.headers import libraries, scripts


@pytest.mark.parametrize("name", scripts())
def test_a_script_is_its_libraries_in_their_order_and_then_itself(name: str) -> None:
    body = scripts()[name]
    found = script(name)
    parts = [*(libraries()[library] for library in libraries_for(body)), body]
    assert found.source == "\n".join(parts)
    assert found.sha == hashlib.sha1(found.source.encode()).hexdigest()
    assert found.name == name


def test_only_the_header_names_libraries() -> None:
    assert needed_libraries("-- needs: shard, head\n-- Does something.\n\n-- needs: xor\n") == ["shard", "head"]
    assert needed_libraries("-- Gives a spout its number.\n\nlocal x = 1 -- needs: xor\n") == []


def test_libraries_bring_those_they_need() -> None:
    assert libraries_for("-- needs: ids\n") == ["bytes", "ids"]
    assert assemble("-- needs: ids\nreturn 1") == "\n".join(
        [libraries()["bytes"], libraries()["ids"], "-- needs: ids\nreturn 1"]
    )


def test_a_script_is_read_once() -> None:
    assert script("ack") is script("ack")


def test_a_script_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        script("no_such_script")


def test_lua_is_beside_the_package_or_inside_it() -> None:
    assert (lua_folder() / "ack.lua").is_file()
