"""Tasks that a bolt or a grouping of the user chooses, and how a bolt learns which tasks get what it emits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from redis_acker import (
    BasicBolt,
    Bolt,
    CustomGrouping,
    LocalRunner,
    Router,
    SpoutDriver,
    TaskId,
    Topology,
    TopologyBuilder,
    Tuple,
)
from redis_acker.errors import BadInput, BadTopology
from redis_acker.spouts.iterable import IterableSpout
from tests.components.store import Store
from tests.topology.parts import Does, Note, Relay, Shared, Watcher, run

TASKS = 3


def relayed(bolt: Bolt, note: Note, listen: Callable[[Any], object], values: Iterable[Any] = range(30)) -> Topology:
    """source -> chooser -> note, three tasks of it."""
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout(values))
    builder.bolt("chooser", bolt, parallelism=2).shuffle("source")
    listen(builder.bolt("note", note, parallelism=TASKS))
    return builder.build()


# -- the tasks that get what is emitted ------------------------------------------------------------------------------


class Tells(BasicBolt):
    """Notes the tasks that get what it emits."""

    fields = ("value",)

    def __init__(self) -> None:
        self.told: Shared[tuple[Any, list[TaskId]]] = Shared()

    def process(self, tup: Tuple, emit: Callable[..., Any]) -> None:
        self.told.append((tup["value"], emit(tup["value"])))


@pytest.mark.parametrize("kind", ["shuffle", "all", "fields", "local_or_shuffle"])
def test_emit_returns_the_tasks_that_get_the_values(store: Store, kind: str) -> None:
    bolt, note = Tells(), Note()
    names = ["value"] if kind == "fields" else []
    run(relayed(bolt, note, lambda listener: getattr(listener, kind)("chooser", *names)), store)
    told = Counter((value, task) for value, tasks in bolt.told for task in tasks)
    assert told == Counter((value, ("note", task)) for value, task in zip(note.values, note.tasks, strict=True))
    assert len(note.values) == (90 if kind == "all" else 30)


def test_local_or_shuffle_spreads_evenly(store: Store) -> None:
    note = Note()
    run(relayed(Relay(), note, lambda listener: listener.local_or_shuffle("chooser")), store)
    assert Counter(note.tasks) == {0: 10, 1: 10, 2: 10}


def test_an_emit_that_nobody_hears_returns_no_task(store: Store) -> None:
    bolt = Tells()
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([1]))
    builder.bolt("tells", bolt).shuffle("source")
    run(builder.build(), store)
    assert bolt.told == [(1, [])]


# -- direct ----------------------------------------------------------------------------------------------------------


class Chooses(Bolt):
    """Emits each number to the task that it says."""

    fields = ("value",)

    def execute(self, tup: Tuple) -> None:
        tasks = self.collector.direct_tasks()
        self.collector.emit_direct(tasks[tup["value"] % len(tasks)], [tup["value"]], anchors=tup)
        self.collector.ack(tup)


@pytest.mark.parametrize("is_tracked", [True, False])
def test_a_bolt_chooses_the_task_of_a_direct_grouping(store: Store, is_tracked: bool) -> None:
    note = Note()
    runner = run(relayed(Chooses(), note, lambda listener: listener.direct("chooser")), store if is_tracked else None)
    assert sorted(zip(note.values, note.tasks, strict=True)) == [(value, value % TASKS) for value in range(30)]
    assert runner.counters()["source"].acked == (30 if is_tracked else 0)


def test_what_is_emitted_directly_is_in_the_tree(store: Store) -> None:
    def refuse(collector: Any, tup: Tuple) -> None:
        collector.fail(tup, "no")

    watcher = Watcher()
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([5]))
    builder.bolt("chooser", Chooses()).shuffle("source")
    builder.bolt("refuse", Does(refuse)).direct("chooser")
    run(builder.build(), store, observer=watcher)
    assert [letter.history[-1].component for letter in watcher.letters] == ["refuse"]


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda out, tup: out.emit([1], anchors=tup), r"stream 'default' of 'chooser' are direct: use emit_direct\(\)"),
        (lambda out, tup: out.emit_direct(TaskId("note", 3), [1]), r"directly to \('note', 3\), which does not listen"),
        (lambda out, tup: out.emit_direct(TaskId("nope", 0), [1]), r"direct_tasks\(\) has \[\('note', 0\), "),
        (lambda out, tup: out.emit_direct(2, [1]), r"emit_direct\(\) takes one of direct_tasks\(\), not 2"),
        (lambda out, tup: out.emit_direct(("note", 0), [1, 2]), "emits 2 values to stream 'default'"),
        (lambda out, tup: out.emit_direct(("note", 0), [1], stream="x"), "emits to stream 'x', which it does not"),
    ],
    ids=["not chosen", "no such task", "no such bolt", "a number", "too many values", "no such stream"],
)
def test_a_wrong_choice_fails_the_tuple_and_leaves_nothing_behind(
    store: Store, act: Callable[[Any, Tuple], object], error: str
) -> None:
    errors: Shared[str] = Shared()

    def choose(collector: Any, tup: Tuple) -> None:
        with pytest.raises(BadInput, match=error) as raised:
            act(collector, tup)
        errors.append(str(raised.value))
        collector.ack(tup)

    note = Note()
    runner = run(relayed(Does(choose), note, lambda listener: listener.direct("chooser"), [1]), store)
    assert (len(errors), note.values) == (1, [])
    assert runner.counters()["source"].acked == 1


def test_a_chosen_task_may_be_any_that_is_equal_to_one_of_direct_tasks(store: Store) -> None:
    def choose(collector: Any, tup: Tuple) -> None:
        collector.emit_direct(("note", float(tup["value"])), [tup["value"]], anchors=tup)
        collector.ack(tup)

    note = Note()
    run(relayed(Does(choose), note, lambda listener: listener.direct("chooser"), range(TASKS)), store)
    assert sorted(zip(note.values, note.tasks, strict=True)) == [(task, task) for task in range(TASKS)]


def test_a_stream_is_direct_for_all_who_listen_or_for_none() -> None:
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([1]))
    builder.bolt("chooser", Chooses()).shuffle("source")
    builder.bolt("one", Note()).direct("chooser")
    builder.bolt("two", Note()).shuffle("chooser")
    with pytest.raises(BadTopology, match=r"has listeners with groupings \['direct', 'shuffle'\], but what is emitted"):
        builder.build()


def test_a_spout_chooses_no_tasks() -> None:
    builder = TopologyBuilder("job")
    builder.spout("source", IterableSpout([1]))
    builder.bolt("note", Note()).direct("source")
    with pytest.raises(BadTopology, match="'source' with a direct grouping, but a spout does not choose tasks: put a"):
        builder.build()


def test_emit_direct_to_a_stream_that_a_grouping_deals_out_is_refused(store: Store) -> None:
    errors: Shared[str] = Shared()

    def choose(collector: Any, tup: Tuple) -> None:
        with pytest.raises(BadInput, match=r"with a direct grouping: direct_tasks\(\) has \[\]"):
            collector.emit_direct(TaskId("note", 0), [1], anchors=tup)
        errors.append("")
        collector.ack(tup)

    run(relayed(Does(choose), Note(), lambda listener: listener.shuffle("chooser"), [1]), store)
    assert len(errors) == 1


# -- custom ----------------------------------------------------------------------------------------------------------


class Modulo(CustomGrouping):
    """Numbers go to the task of their remainder, those below zero to none."""

    def __init__(self, field: str, *, wrong: Any = None) -> None:
        self.field, self.wrong = field, wrong

    def prepare(self, fields: Sequence[str], tasks: int) -> None:
        self.place, self.tasks = fields.index(self.field), tasks

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        if self.wrong is not None:
            return [self.wrong]
        return [] if values[self.place] < 0 else [values[self.place] % self.tasks]


@pytest.mark.parametrize("upstream", ["source", "chooser"])
def test_a_custom_grouping_chooses_the_tasks(store: Store, upstream: str) -> None:
    note, grouping = Note(), Modulo("value")
    listen: Callable[[Any], object] = lambda listener: listener.custom(upstream, grouping)  # noqa: E731
    runner = run(relayed(Relay(), note, listen, range(-3, 30)), store)
    assert sorted(zip(note.values, note.tasks, strict=True)) == [(value, value % TASKS) for value in range(30)]
    assert runner.counters()["source"].acked == 33
    assert not hasattr(grouping, "tasks")  # each task that emits has a copy


@pytest.mark.parametrize("chosen", [None, 1])
def test_a_custom_grouping_that_returns_no_list_fails_the_tuple_and_says_what_to_return(
    store: Store, chosen: Any
) -> None:
    class Bare(CustomGrouping):
        def choose_tasks(self, values: Sequence[Any]) -> Any:
            return chosen

    watcher = Watcher()
    run(relayed(Relay(), Note(), lambda listener: listener.custom("chooser", Bare()), [1]), store, observer=watcher)
    [letter] = watcher.letters
    assert f"Bare.choose_tasks() returned {chosen}: return a list of the numbers of tasks" in letter.history[-1].error


def test_a_grouping_that_cannot_be_prepared_is_refused(store: Store) -> None:
    work = relayed(Relay(), Note(), lambda listener: listener.custom("chooser", Modulo("no such field")))
    with pytest.raises(BadTopology, match=r"^prepare\(\) of Modulo raised ValueError: tuple.index"):
        LocalRunner(work, store.acker)


def test_a_custom_grouping_may_count_with_numpy(store: Store) -> None:
    class Counts(CustomGrouping):
        def choose_tasks(self, values: Sequence[Any]) -> Any:
            return np.array([values[0] % TASKS])

    note = Note()
    run(relayed(Relay(), note, lambda listener: listener.custom("chooser", Counts())), store)
    assert sorted(zip(note.values, note.tasks, strict=True)) == [(value, value % TASKS) for value in range(30)]


@pytest.mark.parametrize("wrong", [3, -1, "0", 1.0, True])
def test_a_custom_grouping_that_chooses_no_task_of_the_bolt_fails_the_tuple(store: Store, wrong: Any) -> None:
    watcher = Watcher()
    listen: Callable[[Any], object] = lambda listener: listener.custom("chooser", Modulo("value", wrong=wrong))  # noqa: E731
    run(relayed(Relay(), Note(), listen, [1]), store, observer=watcher)
    [letter] = watcher.letters
    assert f"Modulo.choose_tasks() chose task {wrong!r} for (1,), but the bolt has tasks 0 to 2." in (
        letter.history[-1].error
    )


def test_a_grouping_of_another_class_is_refused() -> None:
    with pytest.raises(BadTopology, match="must be an object of a class derived from CustomGrouping, not <class"):
        TopologyBuilder("job").bolt("b", Relay()).custom("source", Modulo)  # type: ignore[arg-type]


def test_a_grouping_that_cannot_be_copied_is_refused(store: Store) -> None:
    grouping = Modulo("value")
    grouping.wrong = threading.Lock()
    topology = relayed(Relay(), Note(), lambda listener: listener.custom("chooser", grouping))
    with pytest.raises(BadTopology, match="Modulo cannot be copied for the tasks that emit"):
        LocalRunner(topology, store.acker)


# -- what runs -------------------------------------------------------------------------------------------------------


def test_the_copies_of_a_spout_are_reachable_as_those_of_a_bolt_are() -> None:
    builder = TopologyBuilder("job")
    source = IterableSpout(range(10))
    builder.spout("source", source, parallelism=2)
    builder.bolt("relay", Relay()).shuffle("source")
    with LocalRunner(builder.build(), None) as runner:
        assert runner.wait_until_idle(timeout_s=30)
    copies = [driver.spout for driver in runner.spouts["source"]]
    assert [type(copy) for copy in copies] == [IterableSpout, IterableSpout]
    assert source not in copies
    assert runner.spouts["source"] == runner.drivers


def test_a_router_of_ones_own_drives_a_spout_without_a_runner(store: Store) -> None:
    got: list[Any] = []

    class Printer:
        def targets(self, stream: str, values: Sequence[Any]) -> list[str]:
            return ["here"]

        def deliver(self, target: str, values: Sequence[Any], stream: str, anchors: Any) -> None:
            got.append((target, values))
            store.acker.ack(list(anchors), list(anchors.values()))

    router: Router = Printer()
    driver = SpoutDriver(IterableSpout([1, 2]), store.acker, router, name="own", clock=store.clock)
    driver.open()
    while not driver.is_idle():
        driver.step()
    driver.close()
    assert got == [("here", [1]), ("here", [2])]
    assert driver.counters.acked == 2
