"""A run as a whole: restarts, long micro-batches, backpressure, and the life of a runner."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Acker, BasicBolt, Tuple
from redis_acker.errors import BadInput
from redis_acker.spouts.jsonl import JsonLinesSpout
from spark_integration.topologies.micro_batch import MicroBatch
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Note, Notebook, Relay, chain
from tests.waiting import wait_until

TICKS = 5
"""Rotations after which a root with three buckets has expired, whenever it was born."""


class WaitsForRotations(BasicBolt):
    """Takes longer than the timeout, and says that it is well."""

    def __init__(self, acker: Acker, notebook: Notebook) -> None:
        self.store, self.notebook = acker, notebook

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        begin = self._ticks()
        wait_until(lambda: self.collector.extend(tup) and self._ticks() >= begin + TICKS, timeout_s=30)

    def _ticks(self) -> int:
        return min(shard.tick for shard in self.store.stats().shards)


class TestShortTimeout:
    @pytest.fixture
    def timeout_ms(self) -> int:
        return 1_000

    def test_a_message_does_not_time_out_that_its_bolt_extends(self, bench: Bench) -> None:
        bench.run(chain([1, 2], WaitsForRotations(bench.acker, bench.notebook)))

        assert bench.books() == (2, 0, 0, 0)

    @pytest.mark.parametrize("dies", ["before the job", "after the job"])
    def test_a_driver_that_died_is_succeeded_and_nothing_is_lost(self, bench: Bench, tmp_path: Path, dies: str) -> None:
        (tmp_path / "numbers").write_text("".join(f"{json.dumps(number)}\n" for number in range(100)))

        def topology() -> Any:
            source = JsonLinesSpout(tmp_path / "numbers", checkpoint=tmp_path / "checkpoint")
            return chain(source, Relay(), Note(bench.notebook))

        first = bench.runner(topology(), max_pending=50)
        works, seen = first._jobs.run, []

        def run(batch: MicroBatch, *, is_careful: bool = False) -> Any:
            seen.append(batch)
            rows = [] if len(seen) > 1 and dies == "before the job" else works(batch, is_careful=is_careful)
            if len(seen) > 1:
                raise KeyboardInterrupt(f"the driver dies {dies}")
            return rows

        first._jobs.run = run  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt), first:
            first.wait_until_idle(timeout_s=60)
        left, in_work = {one.root for one in bench.acker.pending()}, set(seen[-1].roots().tolist())
        bench.run(topology())

        assert len(bench.completed) == len(set(bench.completed)) == 100
        assert {note[2] for note in bench.notebook.read()} == set(range(100))
        assert bench.books() == (100, 0, len(left), 0)
        assert len(left) <= 50
        assert left & in_work == (in_work if dies == "before the job" else set())


def test_a_micro_batch_holds_no_more_than_max_pending_messages(bench: Bench) -> None:
    runner = bench.runner(chain(range(25), Relay()), max_pending=10)
    works, sizes = runner._jobs.run, []

    def run(batch: MicroBatch, *, is_careful: bool = False) -> Any:
        sizes.append(len(batch.deliveries))
        return works(batch, is_careful=is_careful)

    runner._jobs.run = run  # type: ignore[method-assign]
    with runner:
        assert runner.wait_until_idle(timeout_s=60)

    assert sum(sizes) == 25
    assert max(sizes) <= 10
    assert runner.counters()["source"].waited > 0
    assert bench.books() == (25, 0, 0, 0)


def test_a_runner_runs_once(bench: Bench) -> None:
    runner = bench.run(chain([1], Relay()))

    with pytest.raises(BadInput, match="a runner runs once: make another"):
        runner.start()


def test_a_runner_that_is_stopped_leaves_what_waits_pending(bench: Bench) -> None:
    runner = bench.runner(chain(range(10), Relay()))

    def begin_nothing(stop: threading.Event, live_roots: object) -> None:
        stop.wait(0.01)

    runner._gatherer.begin = begin_nothing  # type: ignore[method-assign]
    with runner:
        wait_until(lambda: runner.counters()["source"].emitted == 10)
        assert not runner.wait_until_idle(timeout_s=0.1)

    assert bench.books() == (0, 0, 0, 10)
    assert not runner.wait_until_idle()


def test_a_misspelt_option_is_refused_by_its_name(bench: Bench) -> None:
    with pytest.raises(TypeError, match=r"SparkRunner\(\) got an unexpected keyword argument 'retry'"):
        bench.runner(chain([1], Relay()), retry=None)
