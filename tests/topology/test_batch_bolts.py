"""Bolts that get many tuples at once."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from math import inf
from typing import Any

import pyarrow as pa
import pytest

from redis_acker import Acker, BatchBolt, FailedTuple, LocalRunner, RetryPolicy, TopologyBuilder, Tuple, to_arrow
from redis_acker.errors import BadInput, BadTopology
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.testing import SimulatedTime, simulated_acker
from tests.components.store import Store
from tests.topology.parts import ONE_ATTEMPT, Note, Raises, Shared, Watcher, run, topology
from tests.waiting import wait_until


class Batches(BatchBolt):
    """Notes its batches and does with each what it is told. The first batch waits until it may go on."""

    fields = ("value",)
    batch_size = 10

    def __init__(self, act: Callable[[BatchBolt, list[Tuple]], None] | None = None) -> None:
        self.batches: Shared[list[Any]] = Shared()
        self.gates: Shared[threading.Event] = Shared([threading.Event()])
        self._act = act

    def process_batch(self, tuples: list[Tuple]) -> None:
        self.batches.append([tup["value"] for tup in tuples])
        self.gates[0].wait(30)
        if self._act:
            self._act(self, tuples)


def run_all_at_once(bolt: Batches, runner: LocalRunner, messages: int) -> None:
    """Lets the bolt go on when everything has been emitted."""
    with runner:
        wait_until(lambda: runner.counters()["source"].emitted == messages)
        wait_until(lambda: len(bolt.batches) > 0)
        bolt.gates[0].set()
        assert runner.wait_until_idle(timeout_s=30)


@pytest.mark.parametrize("is_tracked", [True, False])
def test_a_bolt_is_given_what_waits_as_far_as_its_batch_size_goes(store: Store, is_tracked: bool) -> None:
    bolt, sink = Batches(lambda bolt, tuples: emit_all(bolt, tuples)), Note()
    runner = LocalRunner(topology(range(35), bolt, sink), store.acker if is_tracked else None)
    run_all_at_once(bolt, runner, 35)
    assert [value for batch in bolt.batches for value in batch] == sorted(sink.values) == list(range(35))
    assert [len(batch) for batch in bolt.batches[1:3]] == [10, 10]
    assert max(map(len, bolt.batches)) == 10
    counters = runner.counters()
    assert (counters["bolt0"].executed, counters["bolt0"].acked) == (35, 35)
    assert counters["source"].acked == (35 if is_tracked else 0)


def emit_all(bolt: BatchBolt, tuples: list[Tuple]) -> None:
    for tup in tuples:
        bolt.collector.emit([tup["value"]], anchors=tup)


def test_a_bolt_fails_single_tuples_of_a_batch_and_the_rest_is_acked(store: Store) -> None:
    def fail_odd(bolt: BatchBolt, tuples: list[Tuple]) -> None:
        for tup in tuples:
            if tup["value"] % 2:
                bolt.collector.fail(tup, f"{tup['value']} is odd")
            elif tup["value"] == 0:
                bolt.collector.ack(tup)

    bolt, watcher = Batches(fail_odd), Watcher()
    runner = LocalRunner(topology(range(20), bolt), store.acker, retries=ONE_ATTEMPT, observer=watcher)
    run_all_at_once(bolt, runner, 20)
    assert sorted(watcher.completed) == list(range(0, 20, 2))
    assert {letter.message_id: letter.history[-1].error for letter in watcher.letters} == {
        number: f"{number} is odd" for number in range(1, 20, 2)
    }


def test_an_error_fails_what_is_not_finished_of_the_batch_and_no_other_batch(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def act(bolt: BatchBolt, tuples: list[Tuple]) -> None:
        if tuples[-1]["value"] == 19:
            bolt.collector.ack(tuples[0])
            raise ValueError("broken")

    bolt, watcher = Batches(act), Watcher()
    runner = LocalRunner(topology(range(20), bolt), store.acker, retries=ONE_ATTEMPT, observer=watcher)
    run_all_at_once(bolt, runner, 20)
    last = bolt.batches[-1]
    assert sorted(letter.message_id for letter in watcher.letters) == last[1:]
    assert {letter.history[-1].error for letter in watcher.letters} == {"ValueError: broken"}
    assert len(watcher.completed) == 20 - len(last[1:])
    assert f"raised an error, which fails {len(last) - 1} of {len(last)} tuples" in caplog.text


def test_a_failed_tuple_may_be_fatal_for_the_whole_batch_and_an_error_after_all_acks_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def reject(bolt: BatchBolt, tuples: list[Tuple]) -> None:
        raise FailedTuple("no", fatal=True)

    def ack_and_raise(bolt: BatchBolt, tuples: list[Tuple]) -> None:
        for tup in tuples:
            bolt.collector.ack(tup)
        raise ValueError("too late")

    for act in (reject, ack_and_raise):
        bolt = Batches(act)
        bolt.gates[0].set()
        runner = run(topology(range(3), bolt), store, retries=RetryPolicy(max_attempts=3))
        assert runner.counters()["source"].dead == (3 if act is reject else 0)
    assert re.search(r"raised an error after (all \d tuples were finished|Tuple.* was acked)", caplog.text)


def test_what_a_batch_emits_is_in_the_tree_of_the_tuple_it_is_anchored_to(store: Store) -> None:
    bolt, watcher = Batches(emit_all), Watcher()
    bad = Raises(FailedTuple("bad"), [3, 7])
    runner = LocalRunner(topology(range(10), bolt, bad), store.acker, retries=ONE_ATTEMPT, observer=watcher)
    run_all_at_once(bolt, runner, 10)
    assert sorted(letter.message_id for letter in watcher.letters) == [3, 7]
    assert len(watcher.completed) == 8


def test_a_batch_that_hangs_times_out_as_a_whole_naming_the_bolt_and_a_new_copy_goes_on(
    hasty_acker: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    gate, hung = threading.Event(), list[int]()

    def hang_once(bolt: BatchBolt, tuples: list[Tuple]) -> None:
        if len(tuples) > 1 and not hung:
            hung.extend(tup["value"] for tup in tuples)
            gate.wait(30)

    bolt, watcher = Batches(hang_once), Watcher()
    runner = LocalRunner(topology(range(20), bolt), hasty_acker, retries=ONE_ATTEMPT, observer=watcher)
    run_all_at_once(bolt, runner, 20)
    gate.set()
    assert sorted(letter.message_id for letter in watcher.letters) == hung
    for letter in watcher.letters:
        assert re.fullmatch(r"bolt0 has worked on it for .* s and has not come back", letter.history[-1].error)
    assert len(watcher.completed) == 20 - len(hung)
    assert f"hangs: it has worked on {len(hung)} tuples for" in caplog.text


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_a_message_with_which_every_batch_fails_takes_no_others_along(how: str) -> None:
    """They fail with it once, and are then tried in smaller batches."""

    class Poisoned(BatchBolt):
        def __init__(self, time: SimulatedTime) -> None:
            self._time = time

        def process_batch(self, tuples: list[Tuple]) -> None:
            is_poisoned = any(tup["value"] == 17 for tup in tuples)
            self._time.sleep(inf if is_poisoned and how == "hangs" else 2)
            if is_poisoned:
                raise ValueError("not a number")

    watcher = Watcher()
    with simulated_acker() as (acker, time):
        runner = LocalRunner(topology(range(40), Poisoned(time)), acker, observer=watcher).start()
        assert runner.wait_until_idle()
        runner.stop()
    assert [letter.message_id for letter in watcher.letters] == [17]
    assert len(watcher.completed) == 39
    assert max(Counter(message_id for message_id, _ in watcher.failed if message_id != 17).values()) == 1


def test_a_batch_that_ends_the_run_has_failed_and_is_given_up_in_the_end() -> None:
    class Exits(BatchBolt):
        def process_batch(self, tuples: list[Tuple]) -> None:
            raise SystemExit("out of paper")

    watcher = Watcher()
    with simulated_acker() as (acker, _):
        for bolt, ends in ((Exits(), pytest.raises(SystemExit)), (Note(), nullcontext())):
            runner = LocalRunner(topology([1], bolt), acker, retries=ONE_ATTEMPT, observer=watcher)
            with ends, runner:
                runner.wait_until_idle()
    [letter] = watcher.letters
    assert letter.history[-1].error == "it ends the run: SystemExit: out of paper"


# -- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "10"])
def test_a_batch_size_that_is_no_number_of_tuples_is_refused(size: Any) -> None:
    bolt = Batches()
    bolt.batch_size = size
    with pytest.raises(BadTopology, match=r"batch_size of 'b' must be a whole number from 1"):
        TopologyBuilder("job").bolt("b", bolt)


def test_ticks_are_refused() -> None:
    with pytest.raises(BadTopology, match="is a BatchBolt and gets no tick tuples: it is given what waits"):
        TopologyBuilder("job").bolt("b", Batches(), tick_every_s=1)


# -- Arrow -----------------------------------------------------------------------------------------------------------


def test_tuples_become_one_arrow_batch_with_a_row_each() -> None:
    tuples = [Tuple((number, f"n{number}"), fields=("number", "name")) for number in range(3)]
    assert to_arrow(tuples).to_pydict() == {"number": [0, 1, 2], "name": ["n0", "n1", "n2"]}
    schema = pa.schema([("number", pa.int8()), ("name", pa.string())])
    assert to_arrow(tuples, schema).schema == schema


@pytest.mark.parametrize(
    ("tuples", "match"),
    [
        ([Tuple((1,), fields=("a",)), Tuple((1,), fields=("b",))], r"not with \[\('a',\), \('b',\)\]"),
        ([Tuple((1,))], "give it those of one stream, and name the fields"),
        ([], "give it those of one stream"),
        ([Tuple((1,), fields=("a",)), Tuple(("x",), fields=("a",))], r"do not fit into Arrow columns \['a'\]"),
    ],
    ids=["different fields", "no fields", "no tuples", "different types"],
)
def test_tuples_that_are_no_table_are_refused(tuples: list[Tuple], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        to_arrow(tuples)


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match="needs PyArrow: install it with `pip install pyarrow`"):
        to_arrow([Tuple((1,), fields=("a",))])


def test_a_copy_of_the_bolt_runs_for_each_task(store: Store) -> None:
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(range(100)))
    bolt = Batches()
    bolt.gates[0].set()
    builder.bolt("bolt0", bolt, parallelism=3).shuffle("source")
    runner = run(builder.build(), store)
    assert runner.counters()["source"].acked == 100
