"""Jobs that fail: one bad message does not fail the others, and what is wrong with Spark ends the run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redis_acker import BasicBolt, OutputCollector, RetryPolicy, TaskContext, Tuple
from redis_acker.errors import BadTopology, ServerUnavailable
from redis_acker.spouts.iterable import IterableSpout
from spark_integration.topologies.micro_batch import MicroBatch
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Note, Notebook, Relay, builder_of, chain, die

ELSEWHERE = """
from redis_acker import BasicBolt

class Known(BasicBolt):
    def process(self, tup, emit):
        pass
"""


class Crashes(BasicBolt):
    """A value that ends the whole process, whenever it is worked on."""

    fields = ("value",)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] == 5:
            die()
        emit(tup["value"])


@pytest.mark.full
def test_a_message_that_kills_every_worker_is_dead_and_the_others_complete(bench: Bench) -> None:
    bench.run(chain([3, 4, 5], Crashes(), Relay()), retries=RetryPolicy(max_attempts=1))

    [letter] = bench.letters()
    assert sorted(bench.completed) == [0, 1]
    assert (letter.message_id, letter.history[0].component) == (2, "bolt0")
    assert letter.history[0].error.startswith("its Spark job failed: ")
    assert bench.books() == (2, 1, 0, 0)


class PreparesToDie(BasicBolt):
    """Ends the process before it has worked on anything, as long as it is told to."""

    fields = ("value",)

    def __init__(self, notebook: Notebook, times: int) -> None:
        self.notebook, self.times = notebook, times

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        if self.notebook.count("prepare") <= self.times:
            die()

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        emit(tup["value"])


@pytest.mark.full
def test_what_a_bolt_takes_with_it_in_prepare_fails_and_what_others_have_does_not(bench: Bench) -> None:
    builder = builder_of(range(6))
    builder.bolt("well", Relay()).shuffle("source")
    builder.bolt("ill", PreparesToDie(bench.notebook, 99)).fields("source", "value")
    builder.spout("other", IterableSpout(range(4)))
    builder.bolt("spared", Relay()).shuffle("other")
    bench.run(builder.build(), retries=RetryPolicy(max_attempts=1))

    letters = bench.letters()
    assert [letter.history[0].component for letter in letters] == ["ill"] * 6
    assert len(bench.completed) == 4


def test_messages_of_a_job_that_keeps_failing_fail_together_in_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = bench.runner(chain(range(100), Relay()), retries=RetryPolicy(max_attempts=2, first_ms=1))
    works, tries = runner._jobs.run, []

    def run(batch: MicroBatch, *, is_careful: bool = False) -> Any:
        tries.append((batch.number, len(batch.deliveries), is_careful))
        if len(tries) <= 2:
            raise OSError("no disk")
        return works(batch, is_careful=is_careful)

    monkeypatch.setattr(runner._jobs, "run", run)
    with runner:
        assert runner.wait_until_idle(timeout_s=60)

    # Run again as the same, and then nothing tells what it fails of.
    assert tries[:2] == [(1, 100, False), (1, 100, True)]
    assert bench.books() == (100, 100, 0, 0)


def test_a_job_that_fails_is_run_again_and_uses_up_no_attempt(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The first level has sent its acks; the workers of the second die as often as a job stands."""
    bench.run(chain(range(100), Relay(), PreparesToDie(bench.notebook, 3)))

    assert "The Spark job of 100 deliveries failed" in caplog.text
    assert bench.books() == (100, 0, 0, 0)


def test_a_bolt_that_executors_cannot_load_is_refused_at_the_start(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "known_to_the_driver_alone.py").write_text(ELSEWHERE)
    monkeypatch.syspath_prepend(tmp_path)
    bolt = importlib.import_module("known_to_the_driver_alone").Known()

    with pytest.raises(BadTopology, match=r"cannot load the bolt 'bolt0': ModuleNotFoundError: .*Install its module"):
        bench.runner(chain([1], bolt)).start()
    assert bench.books() == (0, 0, 0, 0)


def test_the_run_ends_when_spark_runs_no_jobs_any_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = bench.runner(chain(range(10), Relay())).start()

    def run(batch: MicroBatch, *, is_careful: bool = False) -> Any:
        monkeypatch.setattr(runner._jobs._spark, "createDataFrame", stopped)
        return stopped()

    def stopped(*args: Any) -> Any:
        raise RuntimeError("the SparkContext was stopped")

    monkeypatch.setattr(runner._jobs, "run", run)
    with pytest.raises(ServerUnavailable, match=r"cannot run topology 'job': RuntimeError: the SparkContext was stopp"):
        runner.wait_until_idle(timeout_s=60)
    runner.stop()

    completed, failed, _, pending = bench.books()
    assert (completed, failed, pending) == (0, 0, 10)


def test_settings_of_bolts_are_in_no_plan(bench: Bench) -> None:
    secret = "redis://:s3cret-passw0rd@example.org"
    runner = bench.runner(chain([1], Relay(), Note(Notebook(secret, "key"))))
    [queue, _] = runner._gatherer.queues["bolt0"]
    queue.put(Tuple(["a-payload"], component="source"))
    batch = runner._gatherer._batch_of(runner._gatherer._waiting)
    plan = runner._jobs.frame(batch)._jdf.queryExecution().toString()

    assert "bolt0" in plan
    assert "s3cret" not in plan
    assert "a-payload" not in plan
