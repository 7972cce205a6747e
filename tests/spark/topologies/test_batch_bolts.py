"""Bolts that get many tuples at once, in executors."""

from __future__ import annotations

import threading
import time

import pytest

from redis_acker import BatchBolt, RetryPolicy, Tuple, to_arrow
from spark_integration.topologies.batch_sizes import BatchSizes
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Note, Notebook, chain


class Squares(BatchBolt):
    """Squares a column, and fails what it is told to."""

    fields = ("value",)
    batch_size = 7

    def __init__(self, notebook: Notebook, *bad: int) -> None:
        self.notebook, self.bad = notebook, bad

    def process_batch(self, tuples: list[Tuple]) -> None:
        numbers = to_arrow(tuples).column("value").to_numpy(zero_copy_only=False)
        self.notebook.write("batch", len(tuples))
        for tup, square in zip(tuples, (numbers * numbers).tolist(), strict=True):
            if tup["value"] in self.bad:
                self.collector.fail(tup, "bad", fatal=True)
            else:
                self.collector.emit([square], anchors=tup)


class Breaks(BatchBolt):
    """Cannot work on batches that hold a certain value: it raises an error, or hangs."""

    def __init__(self, notebook: Notebook, bad: int, *, hangs: bool) -> None:
        self.notebook, self.bad, self.hangs = notebook, bad, hangs

    def process_batch(self, tuples: list[Tuple]) -> None:
        self.notebook.write("batch", len(tuples))
        if any(tup["value"] == self.bad for tup in tuples):
            if self.hangs:
                threading.Event().wait()
            raise ValueError("one of them is bad")


@pytest.mark.parametrize("hangs", [False, pytest.param(True, marks=pytest.mark.full)], ids=["raises", "hangs"])
@pytest.mark.parametrize("timeout_ms", [2_000])
def test_a_message_with_which_every_batch_fails_takes_no_others_along(bench: Bench, hangs: bool) -> None:
    bench.run(
        chain(range(70), Breaks(bench.notebook, 3, hangs=hangs)), retries=RetryPolicy(max_attempts=3, first_ms=10)
    )
    assert sorted(map(int, bench.completed)) == sorted(set(range(70)) - {3})
    [letter] = bench.letters()
    assert (letter.message_id, [attempt.component for attempt in letter.history]) == (3, ["bolt0"] * 3)


def test_a_batch_bolt_gets_its_share_of_a_micro_batch_in_batches_and_fails_single_tuples(bench: Bench) -> None:
    runner = bench.run(chain(range(40), Squares(bench.notebook, 3, 30), Note(bench.notebook)))
    notes = bench.notebook.read()
    sizes = [note[1] for note in notes if note[0] == "batch"]
    assert (max(sizes), sum(sizes)) == (7, 40)
    good = sorted(set(range(40)) - {3, 30})
    assert sorted(note[2] for note in notes if note[0] == "bolt1") == [number * number for number in good]
    assert sorted(map(int, bench.completed)) == good
    assert [(letter.message_id, letter.history[-1].error) for letter in bench.letters()] == [(3, "bad"), (30, "bad")]
    assert (runner.counters()["bolt0"].executed, runner.counters()["bolt0"].acked) == (40, 38)


def test_batches_are_smaller_for_some_time_and_at_least_for_the_micro_batch_with_the_replays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, now_s = BatchSizes(), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    assert sizes.begin() == {}
    sizes.note_failed([("bolt", 640), ("bolt", 7), ("other", 1)])
    for at_s, most in [(1, {"bolt": 20}), (2, {"bolt": 20}), (29, {"bolt": 20}), (30, {})]:
        now_s[0] = at_s
        assert sizes.begin() == most
    sizes.note_failed([("bolt", 20)])
    for at_s, most in [(31, {"bolt": 1}), (500, {"bolt": 1}), (501, {})]:
        now_s[0] = at_s
        assert sizes.begin() == most
