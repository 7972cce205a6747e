"""Sinks of tasks that keep the books: slow ones, those that refuse a row, and those that hang."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from redis_acker import Rotator
from redis_acker.store.rotator import RotatorThread
from spark_integration.errors import SinkHangs
from spark_integration.frames import sinks
from spark_integration.frames.sinks import Sink
from spark_integration.runs import portions
from spark_integration.runs.keeping import Keeper
from tests.spark.frames.tasks import Died, MakeRun, Run, batches_of
from tests.waiting import wait_until

TIMEOUT_MS = 600


@pytest.fixture
def run(make_run: MakeRun) -> Run:
    return make_run()


@pytest.fixture
def short(make_run: MakeRun) -> Iterator[tuple[Run, RotatorThread]]:
    """A run whose roots time out soon, with a rotator at work."""
    run = make_run(timeout_ms=TIMEOUT_MS)
    with Rotator(run.acker).start() as rotator:
        yield run, rotator


def keeps(run: Run, attempt: Any, count: int) -> None:
    """Waits until the keeper of an attempt has been at its roots so many times more."""
    before = attempt.wire.calls.count("extend")
    wait_until(lambda: attempt.wire.calls.count("extend") >= before + count, 60)


def test_a_slow_sink_keeps_its_portion_alive(short: tuple[Run, RotatorThread]) -> None:
    """Twelve times a quarter of the timeout."""
    run, _ = short

    def act(number: int) -> None:
        if number == 3:
            keeps(run, one, 12)

    one = run.attempt(act=act)
    one(batches_of(20)).done()

    run.check(range(20))
    assert set(run.begun.values()) == {1}


def test_another_attempt_does_not_take_over_what_is_kept(short: tuple[Run, RotatorThread]) -> None:
    run, _ = short
    entered, leave = threading.Event(), threading.Event()

    def act(number: int) -> None:
        entered.set()
        leave.wait(60)

    slow = run.attempt("slow", act=act)
    thread = slow.start(batches_of(20))
    assert entered.wait(60)
    keeps(run, slow, 8)
    second = run.attempt("second")(batches_of(20)).done()
    leave.set()
    thread.join()

    slow.done()
    assert "init" not in second.wire.calls  # the same roots
    run.check(range(20))


def test_roots_of_a_dead_worker_time_out(short: tuple[Run, RotatorThread]) -> None:
    run, _ = short

    def die(number: int) -> None:
        raise Died

    run.attempt("first", act=die)(batches_of(20))

    wait_until(lambda: run.pending() == 0)
    assert run.outcomes() == ({}, dict.fromkeys(range(20), 1))


def test_portions_shrink_with_the_speed_of_the_sink(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that one takes about as long as it should. The clock is the sink's."""
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    sizes: list[int] = []

    def slow(batch: Any) -> None:
        sizes.append(batch.num_rows)
        now_s[0] += 0.1 * batch.num_rows

    run.attempt(sink=lambda run: Sink("slow", slow, timeout_s=1e6))(batches_of(100)).done()

    assert sizes == [portions.FIRST_ROWS, *[10] * 6, 8]
    assert portions.PORTION_S / 0.1 == 10


def test_a_sink_that_takes_longer_than_a_portion_should_gets_rows_one_by_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    sizes: list[int] = []

    def slow(batch: Any) -> None:
        sizes.append(batch.num_rows)
        now_s[0] += 7.0 * batch.num_rows

    run.attempt(sink=lambda run: Sink("slow", slow, timeout_s=1e6))(batches_of(40)).done()

    assert sizes == [portions.FIRST_ROWS, *[1] * 8]


def test_an_attempt_cuts_as_the_one_before(run: Run) -> None:
    """Though it knows how fast the sink is by now, and would take more at once."""

    def die(number: int) -> None:
        if number == 10:
            raise Died

    run.attempt("first", act=die)(batches_of(100))
    sizes: list[int] = []
    run.attempt("second", sink=lambda run: Sink("count", lambda batch: sizes.append(batch.num_rows)))(
        batches_of(100)
    ).done()

    assert sizes[0] == portions.FIRST_ROWS
    assert sum(sizes) == 100


def refuse(*numbers: int) -> Callable[[int], None]:
    def act(number: int) -> None:
        if number in numbers:
            raise OSError(f"row {number} is refused")

    return act


@pytest.mark.parametrize("concurrency", [1, 4])
def test_one_refused_row_fails_one_message(run: Run, concurrency: int) -> None:
    act = refuse(13)
    at_once, most = [0], [0]

    def store(row: Any) -> None:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        if concurrency > 1 and row.id < concurrency:
            all_there.wait(60)
        try:
            act(row.id)
            run.sunk.append((row.id, ""))
        finally:
            at_once[0] -= 1

    all_there = threading.Barrier(concurrency)
    run.attempt(sink=lambda run: Sink("store", store, per="row", concurrency=concurrency))(batches_of(40)).done()

    run.check(range(40), {13})
    assert most[0] == concurrency
    assert run.rows_sunk() == dict.fromkeys(set(range(40)) - {13}, 1)


def test_a_refused_batch_fails_its_messages(run: Run) -> None:
    def store(batch: Any) -> None:
        numbers = batch.column("id").to_pylist()
        if 35 in numbers:
            raise OSError("refused")
        run.sunk.extend((number, "") for number in numbers)

    run.attempt(sink=lambda run: Sink("store", store))(batches_of(32, 10)).done()

    run.check(range(42), range(32, 42))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_call_that_hangs_ends_the_task(run: Run, monkeypatch: pytest.MonkeyPatch, concurrency: int) -> None:
    """And nothing is complete for which the sink has not returned. Its other threads begin nothing more."""
    monkeypatch.setattr(sinks, "_LOOK_EVERY_S", 0.02)
    hangs, others = threading.Event(), threading.Event()

    def store(row: Any) -> None:
        run.begun[row.id] += 1
        if row.id == 1:
            hangs.wait(60)
        elif row.id > 2:
            others.wait(60)
        run.sunk.append((row.id, "first"))

    first = run.attempt(
        "first", sink=lambda run: Sink("store", store, per="row", concurrency=concurrency, timeout_s=0.2)
    )(batches_of(20))

    assert isinstance(first.error, SinkHangs)
    assert "A call of sink 'store' has not returned for 0.2 s" in str(first.error)
    assert run.outcomes() == ({}, {})
    begun = dict(run.begun)
    others.set()
    hangs.set()
    wait_until(lambda: not [one for one in threading.enumerate() if one.name == "sink"])
    assert run.begun == begun

    run.attempt("second")(batches_of(20)).done()

    run.check(range(20))


def test_threads_of_a_sink_and_the_keeper_end_with_the_task(run: Run) -> None:
    before = threading.active_count()

    run.attempt(act=refuse(3))(batches_of(40)).done()

    wait_until(lambda: threading.active_count() <= before)


def test_roots_are_kept_alive_only_while_a_worker_is_at_them(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker, extended = make_run(timeout_ms=TIMEOUT_MS).open_acker(), Counter[int]()
    monkeypatch.setattr(acker, "extend", lambda roots: extended.update(roots.tolist()))

    with Keeper(acker) as idle, Keeper(acker) as busy:
        with idle.keeping(np.array([1], dtype=np.uint64)):
            wait_until(lambda: extended[1] > 0)
        before = extended[1]
        with busy.keeping(np.array([2], dtype=np.uint64)):
            wait_until(lambda: extended[2] > 3)

    assert extended[1] <= before + 1  # one may have been on its way
