"""Every file of lua/ says which libraries it needs, every library what it exports, and Lua's compiler agrees."""

import pytest

from redis_acker.store.scripts import libraries_for, needed_libraries, script
from tests.lua.headers import exports, header_lines, libraries, parse, scripts
from tests.lua.names import assigned_names, compile_lua, declared_names, free_names

SCRIPTS, LIBRARIES = scripts(), libraries()
EVERY_FILE = {**SCRIPTS, **{f"lib/{name}": text for name, text in LIBRARIES.items()}}

OF_REDIS = {"KEYS", "ARGV", "redis", "struct", "bit"}
OF_LUA = {"math", "string", "table", "next", "pairs", "tonumber", "type", "unpack"}

MOST_LOCALS, MOST_UPVALUES = 165, 40
"""A script with more than 200 local names, or a function that uses more than 60 of them, is refused by Lua."""

DECLARED = {name: declared_names(text) for name, text in LIBRARIES.items()}
HOME = {local: library for library, names in DECLARED.items() for local in names}
"""Name -> the library that declares it."""


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_file_needs_the_libraries_whose_names_it_uses(name: str) -> None:
    needed = needed_libraries(EVERY_FILE[name])
    assert len(needed) == len(set(needed))
    assert set(needed) == {HOME[free] for free in free_names(EVERY_FILE[name]) if free in HOME}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_exports_what_others_use_and_nothing_else(library: str) -> None:
    others = [text for name, text in EVERY_FILE.items() if name != f"lib/{library}"]
    used = set.union(*(free_names(text) for text in others))
    assert sorted(exports(LIBRARIES[library])) == sorted(used & set(DECLARED[library]))
    assert header_lines(LIBRARIES[library])[0].startswith("-- "), "it does not say what it is for"


def test_no_two_libraries_declare_the_same_name() -> None:
    assert len(HOME) == sum(len(names) for names in DECLARED.values())


@pytest.mark.parametrize("name", EVERY_FILE)
def test_all_other_names_are_those_of_lua_and_redis(name: str) -> None:
    assert free_names(EVERY_FILE[name]) - set(HOME) <= OF_REDIS | OF_LUA
    assert not assigned_names(EVERY_FILE[name]), "only the library that declares a name may change it"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_library_is_loaded_once_and_after_those_it_needs(name: str) -> None:
    order = libraries_for(SCRIPTS[name])
    assert len(order) == len(set(order))
    for position, library in enumerate(order):
        assert set(needed_libraries(LIBRARIES[library])) <= set(order[:position]), library


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_is_loaded_with_leaves_no_name_open(name: str) -> None:
    assert free_names(script(name).source) <= OF_REDIS | OF_LUA


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_stays_clear_of_the_limits_of_lua(name: str) -> None:
    found = compile_lua(script(name).source)
    assert len(found.locals) <= MOST_LOCALS
    assert max(one.upvalues for one in found.all()) <= MOST_UPVALUES


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_keys_of_a_shard_are_those_of_a_script_that_says_so(name: str) -> None:
    assert parse(SCRIPTS[name]).on_shard == ("shard" in needed_libraries(SCRIPTS[name]))


def test_every_library_is_used() -> None:
    assert {library for text in SCRIPTS.values() for library in libraries_for(text)} == set(LIBRARIES)
