"""Bolts that get many tuples at once, in executors."""

from __future__ import annotations

from redis_acker import BatchBolt, Tuple, to_arrow
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
