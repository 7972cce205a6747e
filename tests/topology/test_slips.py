"""What components do wrong without knowing: it works, or somebody is told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from redis_acker import (
    BasicBolt,
    BatchBolt,
    Bolt,
    FailedTuple,
    LocalRunner,
    Message,
    OutputCollector,
    TaskContext,
    Tuple,
)
from redis_acker.components.component import ComponentCounters
from redis_acker.errors import BadInput
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.topology.routing import task_of_key
from tests.components.store import Store
from tests.topology.parts import ONE_ATTEMPT, SPOUT_NAME, Does, ListSpout, Note, Raises, Relay, Watcher, run, topology
from tests.waiting import wait_until


@pytest.mark.parametrize("is_tracked", [True, False], ids=["without an id", "tracking off"])
def test_extending_an_untracked_tuple_does_not_say_that_its_work_is_in_vain(store: Store, is_tracked: bool) -> None:
    answers: list[int] = []

    def extend(collector: OutputCollector, tup: Tuple) -> None:
        answers.append(collector.extend(tup))
        collector.ack(tup)

    run(topology(ListSpout([Message([1])]), Does(extend)), store if is_tracked else None)
    assert answers == [1]


@pytest.mark.parametrize("item", [(1,), (1, 2, 3), "ab", 7, {"a": 1, "b": 2}], ids=repr)
def test_an_item_with_other_values_than_fields_is_a_dead_letter_and_ends_nothing(store: Store, item: Any) -> None:
    note = Note()
    run(topology(IterableSpout([(1, 2), item, (3, 4)], fields=["a", "b"]), note), store)
    assert note.values == [(1, 2), (3, 4)]
    [letter] = store.dead_letters(SPOUT_NAME)
    assert (letter.message_id, letter.payload) == (1, [repr(item)])
    assert letter.history[0].error == (
        f"Item 1 is {item!r} and not a sequence of 2 values, one for each of the fields ['a', 'b']."
    )


@pytest.mark.parametrize("nan", ["float('nan')", "np.float32('nan')", "Decimal('nan')", "Decimal('snan')"])
def test_what_is_not_a_number_goes_to_the_same_task_in_every_process(nan: str) -> None:
    here = [task_of_key([eval(nan, {"np": np, "Decimal": Decimal})], 1000) for _ in range(5)]
    code = f"from decimal import Decimal; import numpy as np; print(task_of_key([{nan}], 1000))"
    code = f"from redis_acker.topology.routing import task_of_key; {code}"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*here, int(printed.stdout)} == {here[0]}


@pytest.mark.parametrize("values", [{"value": 1}, {1}], ids=["a dict", "a set"])
def test_values_without_an_order_are_refused(store: Store, values: Any) -> None:
    def emit(collector: OutputCollector, tup: Tuple) -> None:
        collector.emit(values, anchors=tup)

    note = Note()
    run(topology([1], Does(emit), note), store)
    assert note.values == []
    [letter] = store.dead_letters(SPOUT_NAME)
    assert letter.history[0].error == (
        f"BadInput: 'bolt0' emits {values!r}, which is not a list of values: put it into one."
    )


def test_a_basic_bolt_that_emits_a_dict_for_several_fields_is_refused(store: Store) -> None:
    class Named(BasicBolt):
        fields = ("a", "b")

        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            emit({"a": 1, "b": 2})

    note = Note()
    run(topology([1], Named(), note), store)
    assert note.values == []
    [letter] = store.dead_letters(SPOUT_NAME)
    assert letter.history[0].error == (
        "BadInput: 'bolt0' emits 1 values to stream 'default', which has fields ['a', 'b']."
    )


@pytest.mark.parametrize(
    "bolt",
    [
        Raises(FailedTuple("not\x1b[31m\ntoday"), [7]),
        Does(lambda collector, tup: collector.fail(tup, "not\x1b[31m\ntoday")),
    ],
    ids=["by an exception", "by a call"],
)
def test_an_untracked_tuple_that_fails_is_logged(bolt: Bolt, caplog: pytest.LogCaptureFixture) -> None:
    run(topology([7], bolt), None)
    [message] = [one for one in caplog.messages if "in no tree" in one]
    assert message == (
        "Bolt bolt0 failed Tuple((7,), from 'source', 0 roots), which is in no tree, so nothing replays it: "
        "not\\x1b[31m\\ntoday"
    )


def test_a_bolt_whose_coroutine_is_cancelled_fails_the_tuple(store: Store) -> None:
    class Cancelled(BasicBolt):
        def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
            raise asyncio.CancelledError("shut down")

    runner = run(topology([1, 2], Cancelled()), store)
    assert runner.counters()["bolt0"] == ComponentCounters(executed=2, failed=2)
    assert store.dead_letters(SPOUT_NAME)[0].history[0].error == "CancelledError: shut down"


def test_a_batch_bolt_whose_coroutine_is_cancelled_fails_its_batch(store: Store) -> None:
    class Cancelled(BatchBolt):
        def process_batch(self, tuples: list[Tuple]) -> None:
            raise asyncio.CancelledError("shut down")

    run(topology([1, 2], Cancelled()), store)
    errors = [letter.history[0].error for letter in store.dead_letters(SPOUT_NAME)]
    assert errors == ["CancelledError: shut down"] * 2


@pytest.mark.parametrize("handed_out", [[(1, 2)], ["text"], [None], {"value": 1}], ids=repr)
def test_a_spout_that_hands_out_something_else_than_messages_is_told_what_to_return(
    store: Store, handed_out: Any
) -> None:
    class Bare(ListSpout):
        def next_batch(self, limit: int) -> Any:
            return handed_out

    with pytest.raises(
        BadInput, match=r"'job/source/0' handed out .* from next_batch\(\), which is not a Message: ret"
    ):
        run(topology(Bare([]), Relay()), store)


@pytest.mark.parametrize("batch", [None, Message([1])], ids=["nothing", "one message"])
def test_a_spout_that_returns_no_list_is_told_what_to_return(store: Store, batch: Any) -> None:
    class Forgets(ListSpout):
        def next_batch(self, limit: int) -> Any:
            return batch

    match = r"'job/source/0' returned (None|Message\(.*\)) from next_batch\(\): return a list of messages"
    with pytest.raises(BadInput, match=match):
        run(topology(Forgets([]), Relay()), store)


def test_a_message_with_an_id_that_is_in_work_is_counted_and_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    held: list[tuple[OutputCollector, Tuple]] = []

    class Again(ListSpout):
        def next_batch(self, limit: int) -> list[Message]:
            batch, self._messages = self._messages[:2], self._messages[2:]
            return batch

    spout = Again([Message([number], id="same") for number in range(4)])
    work = topology(spout, Does(lambda collector, tup: held.append((collector, tup))))
    with LocalRunner(work, store.acker, retries=ONE_ATTEMPT) as runner:
        wait_until(lambda: runner.counters()["source"].repeated == 3)
        [(collector, tup)] = held
        collector.ack(tup)
        assert runner.wait_until_idle(timeout_s=30)
    assert runner.counters()["source"] == ComponentCounters(emitted=1, acked=1, repeated=3)
    [warning] = [one for one in caplog.messages if "'same'" in one]
    assert warning.startswith(
        "Spout job/source/0 handed out message 'same' while one with that id is unfinished, so it is"
    )


def test_a_bolt_whose_prepare_forgets_that_of_its_class_works(store: Store) -> None:
    class Forgets(Relay):
        def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
            self.task = context.task

    note = Note()
    run(topology([1, 2], Forgets(), note), store)
    assert note.values == [1, 2]


@pytest.mark.parametrize(
    ("value", "holds"), [(7, "holds its values"), (frozenset({1}), "holds its id but not its values")]
)
def test_a_message_that_dies_is_said_loudly_with_where_it_is(
    store: Store, caplog: pytest.LogCaptureFixture, value: Any, holds: str
) -> None:
    watcher = Watcher()
    run(topology([value], Raises(FailedTuple("no"), [value])), store, observer=watcher)
    [error] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert error.getMessage() == (
        "Message 0 of spout job/source/0 is dead after 1 attempts: failed in bolt0: no. "
        f"Its dead letter {holds}: see `redis-acker dead list`."
    )
