"""Tasks that a bolt or a grouping of the user chooses, in executors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from redis_acker import Bolt, CustomGrouping, TopologyBuilder, Tuple
from redis_acker.errors import BadTopology
from redis_acker.spouts.iterable import IterableSpout
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Note, Notebook, Relay, builder_of

TASKS = 3


class Chooses(Bolt):
    """Emits each number to the task that it says, and says on another stream which tasks got it there."""

    fields = ("value",)
    streams = {"told": ("value", "task")}  # noqa: RUF012

    def execute(self, tup: Tuple) -> None:
        tasks = self.collector.direct_tasks()
        self.collector.emit_direct(tasks[tup["value"] % len(tasks)], [tup["value"]], anchors=tup)
        [(component, task)] = self.collector.emit([tup["value"], ""], anchors=tup, stream="told")
        assert component == "told"
        self.notebook.write("chooser", tup["value"], task)
        self.collector.ack(tup)

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook


class Modulo(CustomGrouping):
    def prepare(self, fields: Sequence[str], tasks: int) -> None:
        self.place, self.tasks = list(fields).index("value"), tasks

    def choose_tasks(self, values: Sequence[Any]) -> list[int]:
        return [values[self.place] % self.tasks]


def test_direct_and_custom_groupings_bring_tuples_to_the_tasks_that_were_chosen(bench: Bench) -> None:
    builder = builder_of(range(30))
    builder.bolt("chooser", Chooses(bench.notebook), parallelism=2).local_or_shuffle("source")
    builder.bolt("direct", Note(bench.notebook), parallelism=TASKS).direct("chooser")
    builder.bolt("told", Note(bench.notebook), parallelism=TASKS).shuffle("chooser", stream="told")
    builder.bolt("relay", Relay(), parallelism=2).custom("source", Modulo())
    builder.bolt("custom", Note(bench.notebook), parallelism=TASKS).custom("relay", Modulo())
    runner = bench.run(builder.build())
    notes: dict[str, list[Any]] = {name: [] for name in ("chooser", "direct", "told", "custom")}
    for name, *rest in bench.notebook.read():
        notes[name].append(tuple(rest))
    expected = sorted((value % TASKS, value) for value in range(30))
    assert sorted(notes["direct"]) == sorted(notes["custom"]) == expected
    assert sorted((value, task) for task, value, _ in notes["told"]) == sorted(notes["chooser"])
    assert bench.books() == (30, 0, 0, 0)
    assert [type(driver.spout).__name__ for driver in runner.spouts["source"]] == ["IterableSpout"]


class Locked(Modulo):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Broken(Modulo):
    def prepare(self, fields: Sequence[str], tasks: int) -> None:
        raise ValueError("no such field")


@pytest.mark.parametrize(
    ("grouping", "error"),
    [
        (
            Locked(),
            r"^The grouping Locked of 'note' cannot be sent to executors \(.*\): open connections",
        ),
        (Broken(), r"^prepare\(\) of Broken raised ValueError: no such field$"),
    ],
    ids=["cannot be pickled", "cannot be prepared"],
)
def test_a_grouping_that_would_fail_every_job_is_refused(bench: Bench, grouping: CustomGrouping, error: str) -> None:
    builder = builder_of([1])
    builder.bolt("relay", Relay()).shuffle("source")
    builder.bolt("note", Note(bench.notebook)).custom("relay", grouping)
    with pytest.raises(BadTopology, match=error):
        bench.runner(builder.build())


def test_a_timeout_of_its_own_is_refused_with_the_reason(bench: Bench) -> None:
    builder = TopologyBuilder("job", timeout_ms=1_000)
    builder.spout("source", IterableSpout([1]))
    builder.bolt("relay", Relay()).shuffle("source")
    with pytest.raises(BadTopology, match="on Spark a job keeps its messages alive for as long as it runs: leave out"):
        bench.runner(builder.build())
