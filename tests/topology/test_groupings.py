"""Which task gets which tuple."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_acker import BasicBolt, CustomGrouping, TopologyBuilder, Tuple
from redis_acker.errors import BadInput
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.topology.builder import BoltDeclarer
from redis_acker.topology.routing import task_of_key
from tests.components.store import Store
from tests.topology.parts import SPOUT_NAME, Note, Relay, run

TASKS = 3


def tasks_of(store: Store | None, group: Callable[[BoltDeclarer], object], values: list[Any]) -> list[tuple[Any, int]]:
    """Which task of a bolt got which value of its source."""
    note = Note()
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(values))
    group(builder.bolt("note", note, parallelism=TASKS))
    run(builder.build(), store)
    return list(zip(note.values, note.tasks, strict=True))


def test_shuffle_spreads_evenly(store: Store) -> None:
    got = tasks_of(store, lambda bolt: bolt.shuffle("source"), list(range(300)))
    assert Counter(task for _, task in got) == {0: 100, 1: 100, 2: 100}
    assert sorted(value for value, _ in got) == list(range(300))


def test_shuffle_spreads_evenly_for_each_of_several_listeners() -> None:
    notes = [Note(), Note(), Note()]
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(range(60)))
    for number, note in enumerate(notes):
        builder.bolt(f"note{number}", note, parallelism=TASKS).shuffle("source")
    run(builder.build(), None)
    for note in notes:
        assert Counter(note.tasks) == {0: 20, 1: 20, 2: 20}


def test_shuffle_spreads_what_many_tasks_emit_a_little_of() -> None:
    note = Note()
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(range(TASKS)))
    builder.bolt("relay", Relay(), parallelism=TASKS).shuffle("source")
    builder.bolt("note", note, parallelism=TASKS).shuffle("relay")
    run(builder.build(), None)
    assert sorted(note.tasks) == [0, 1, 2]


def test_fields_keeps_equal_keys_together_and_uses_every_task(store: Store) -> None:
    words = [f"word {number % 40}" for number in range(400)]
    got = tasks_of(store, lambda bolt: bolt.fields("source", "value"), words)
    assert len(got) == 400
    assert len(set(got)) == 40
    assert {task for _, task in got} == {0, 1, 2}


def test_fields_looks_at_the_named_fields_alone() -> None:
    note = Note()
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([(n, n % 5, n % 2) for n in range(100)], fields=("n", "five", "two")))
    builder.bolt("note", note, parallelism=TASKS).fields("source", "two", "five")
    run(builder.build(), None)
    tasks = {(five, two): set[int]() for five in range(5) for two in range(2)}
    for (_, five, two), task in zip(note.values, note.tasks, strict=True):
        tasks[five, two].add(task)
    assert all(len(some) == 1 for some in tasks.values())


def test_all_reaches_every_task_and_the_root_waits_for_each(store: Store) -> None:
    got = tasks_of(store, lambda bolt: bolt.all("source"), [7, 8])
    assert sorted(got) == [(7, 0), (7, 1), (7, 2), (8, 0), (8, 1), (8, 2)]


def test_global_reaches_the_first_task_alone(store: Store) -> None:
    assert tasks_of(store, lambda bolt: bolt.global_("source"), [7, 8]) == [(7, 0), (8, 0)]


def test_a_bolt_hears_of_several_streams_and_sources_what_it_asked_for(store: Store) -> None:
    class Sorts(BasicBolt):
        fields = ("value",)
        streams = {"odd": ["value"], "even": ["value"]}  # noqa: RUF012

        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            emit(tup["value"], stream="odd" if tup["value"] % 2 else "even")
            emit(-tup["value"])

    odd, everything = Note(), Note()
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(range(1, 5)))
    builder.bolt("sorts", Sorts()).shuffle("source")
    builder.bolt("odd", odd).shuffle("sorts", stream="odd")
    everyone = builder.bolt("everything", everything)
    everyone.shuffle("sorts", stream="odd").global_("sorts", stream="even").shuffle("sorts").all("source")
    run(builder.build(), store)
    assert sorted(odd.values) == [1, 3]
    assert sorted(everything.values) == [-4, -3, -2, -1, 1, 1, 2, 2, 3, 3, 4, 4]
    heard = Counter((tup.component, tup.stream) for tup in everything.tuples)
    assert heard == {("source", "default"): 4, ("sorts", "default"): 4, ("sorts", "odd"): 2, ("sorts", "even"): 2}


KEYS: list[Any] = ["", "a", "ä", "\ud800", 0, -1, 2**70, 1.5, None, True, b"\x00", ["a", 1], {"a": 1}, [["x"], "y"]]

PRINT_TASKS = """
import json
from redis_acker.topology.routing import task_of_key
from tests.topology.test_groupings import KEYS
print(json.dumps([task_of_key([key], 1000) for key in KEYS] + [task_of_key([frozenset("abcdef")], 1000)]))
"""


@pytest.mark.parametrize("seed", ["0", "1"])
def test_a_key_has_the_same_task_in_every_process(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, "-c", PRINT_TASKS], capture_output=True, text=True, env=environment, check=True
    )
    here = [task_of_key([key], 1000) for key in KEYS] + [task_of_key([frozenset("abcdef")], 1000)]
    assert json.loads(printed.stdout) == here


class Colour(str, Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("key", "same"),
    [
        (1, 1.0),
        (1, True),
        (1, np.int64(1)),
        (True, np.True_),
        (0.5, Decimal("0.5")),
        ("red", Colour.RED),
        ("red", np.str_("red")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (("a", 1), ("a", 1.0)),
        (frozenset({"a", "b", "c"}), {"c", "b", "a"}),
    ],
    ids=lambda value: type(value).__name__,  # the repr of a set differs from process to process
)
def test_equal_keys_have_the_same_task(key: Any, same: Any) -> None:
    assert key == same
    assert task_of_key([key], 10_000) == task_of_key([same], 10_000)


@given(st.lists(st.text(), unique=True, min_size=2, max_size=4), st.integers(1, 64))
def test_a_task_is_one_of_those_there_are(key: list[str], parallelism: int) -> None:
    assert 0 <= task_of_key(key, parallelism) < parallelism


def test_keys_that_only_look_alike_are_told_apart() -> None:
    keys: list[list[Any]] = [["a,b"], ["a", "b"], ["a", ",b"], ["1"], [1], ["None"], [None], [b"a"], ["a"], [["a"]]]
    assert len({task_of_key(key, 1 << 30) for key in keys}) == len(keys)


def test_a_key_that_has_no_stable_form_is_refused() -> None:
    with pytest.raises(BadInput, match="Tuples cannot be grouped by <object object at"):
        task_of_key([object()], 3)


# -- messages that cannot be dealt out -------------------------------------------------------------------------------


class Remainder(CustomGrouping):
    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        return [values[0] % TASKS]


@pytest.mark.parametrize(
    ("group", "error"),
    [
        (lambda bolt: bolt.custom("source", Remainder()), "The custom grouping of 'note' raised TypeError: "),
        (
            lambda bolt: bolt.fields("source", "value"),
            "The fields grouping of 'note' raised BadInput: Tuples cannot be",
        ),
    ],
    ids=["custom", "fields"],
)
@pytest.mark.parametrize("is_tracked", [True, False], ids=["tracked", "tracking off"])
def test_a_message_that_a_grouping_cannot_deal_out_ends_nothing(
    store: Store,
    group: Callable[[BoltDeclarer], object],
    error: str,
    is_tracked: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = tasks_of(store if is_tracked else None, group, [1, object(), 2])
    assert sorted(value for value, _ in found) == [1, 2]
    if is_tracked:
        [letter] = store.dead_letters(SPOUT_NAME)
        assert letter.message_id == 1
        assert letter.history[0].error.startswith(error)
    else:
        assert f"Spout {SPOUT_NAME} cannot emit message 1: {error}" in caplog.text
