"""Tasks that keep the books die at every call, and another attempt does the rest: once, and exactly."""

import gc

import pytest

from redis_acker.store.message_ids import id_to_text
from spark_integration.frames.sinks import Sink
from spark_integration.runs.keeping import GC_THRESHOLD
from tests.spark.frames.tasks import Died, MakeRun, Refused, batches_of

#: Two batches, of which a worker that does not know its speed makes three portions.
COUNTS = 50, 30
ROWS = range(sum(COUNTS))
FAILING = {5, 33, 34, 79}


def refuse(number: int) -> None:
    if number in FAILING:
        raise Refused("not this one")


def test_an_attempt_that_nothing_happens_to(make_run: MakeRun) -> None:
    run = make_run()

    one = run.attempt(act=refuse)(batches_of(*COUNTS)).done()

    run.check(ROWS, FAILING)
    assert one.rows == len(ROWS)
    assert run.begun == dict.fromkeys(ROWS, 1)
    assert one.wire.calls[:8] == [
        "begin_portion",
        "init",
        "keep_portion",
        "fail",
        "keep_portion",
        "ack",
        "begin_portion",
        "init",
    ]


@pytest.mark.parametrize("when", ["before", "half", "after"])
def test_an_attempt_dies_at_each_of_its_calls(make_run: MakeRun, when: str) -> None:
    """Before a call is sent; when one of two shards has got it; when it was applied, and its reply was lost."""
    calls = make_run().attempt(act=refuse)(batches_of(*COUNTS)).done().wire.calls
    assert calls.count("ack") == 3

    for number in range(len(calls)):
        run = make_run()
        first = run.attempt("first", act=refuse)
        first.wire.dies_at = number, when
        assert isinstance(first(batches_of(*COUNTS)).error, Died)
        complete = run.outcomes()[0]

        second = run.attempt("second", act=refuse)(batches_of(*COUNTS)).done()

        run.check(ROWS, FAILING)
        assert second.rows == len(ROWS)
        assert set(run.begun.values()) <= {1, 2}
        assert not complete.keys() & run.rows_sunk("second").keys(), calls[number]
        [partition] = run.progress.read()[1]
        assert (partition.done, partition.rows, partition.failed) == (len(ROWS), 0, len(FAILING)), calls[number]


def test_every_attempt_dies_a_little_later(make_run: MakeRun) -> None:
    """As Spark allows no task, and each of them goes on with what the one before has left."""
    run = make_run()
    attempts = 0
    while True:
        one = run.attempt(f"attempt {attempts}", act=refuse)
        one.wire.dies_at = attempts % 5 + 2, ("before", "half", "after")[attempts % 3]
        attempts += 1
        if not one(batches_of(*COUNTS)).error:
            break
        assert attempts < 100

    run.check(ROWS, FAILING)
    assert attempts > 3


def test_an_attempt_dies_in_its_sink(make_run: MakeRun) -> None:
    """The rows that it sank already are sunk twice, and none else."""

    def die(number: int) -> None:
        if number == 40:
            raise Died

    run = make_run()
    assert isinstance(run.attempt("first", act=die)(batches_of(*COUNTS)).error, Died)
    run.attempt("second")(batches_of(*COUNTS)).done()

    run.check(ROWS)
    assert {number for number, calls in run.begun.items() if calls > 1} == set(range(32, 41))


def test_nothing_of_a_dead_attempt_goes_on(make_run: MakeRun) -> None:
    """A sink that ends its task is not called again, by none of its threads."""

    def die(row: object) -> None:
        run.begun[0] += 1
        raise Died

    run = make_run()
    one = run.attempt(sink=lambda run: Sink("store", die, per="row"))
    one(batches_of(20))

    assert isinstance(one.error, Died)
    assert run.begun == {0: 1}


def test_what_is_in_work_is_all_that_is_pending(make_run: MakeRun) -> None:
    pending: list[int] = []
    run = make_run()

    run.attempt(act=lambda number: pending.append(run.pending()))(batches_of(*COUNTS)).done()

    assert set(pending[:32]) == {32}
    assert set(pending[32:50]) == {18}
    assert set(pending[50:]) == {30}


def test_the_init_is_sent_once(make_run: MakeRun) -> None:
    """An attempt that finds its roots pending keeps them alive instead."""

    def die(number: int) -> None:
        raise Died

    run = make_run()
    run.attempt("first", act=die)(batches_of(20))
    second = run.attempt("second")(batches_of(20)).done()

    assert second.wire.calls[:3] == ["begin_portion", "extend", "keep_portion"]
    assert "init" not in second.wire.calls
    run.check(range(20))


def test_messages_that_failed_before_are_at_their_next_attempt(make_run: MakeRun) -> None:
    run = make_run()
    run.attempt(act=refuse, known={5: 1, 33: 2, 7: 1})(batches_of(*COUNTS)).done()

    with run.acker.failures(run.spout_name) as failures, run.acker.completions(run.spout_name) as completions:
        failed = {
            one: at for event in failures.consume() for one, at in zip(event.message_ids, event.attempts, strict=True)
        }
        echoed = {one for event in completions.consume() for one in event.message_ids if one is not None}
    assert failed == {5: 2, 33: 3, 34: 1, 79: 1}
    assert 7 in echoed
    assert 60 not in echoed  # the driver knows nothing of that portion


def test_rows_that_are_given_up_are_noted(make_run: MakeRun) -> None:
    run = make_run()
    run.attempt(act=refuse, known={5: 1, 33: 2, 7: 1}, max_attempts=3)(batches_of(*COUNTS)).done()

    notes = run.acker.shards.failed_rows(run.name)
    assert dict(notes.items()) == {id_to_text(33).encode(): b"[33]"}


@pytest.mark.parametrize("dies", [False, True])
def test_a_worker_collects_garbage_rarely_only_while_a_task_of_ours_is_at_work(make_run: MakeRun, dies: bool) -> None:
    """The next task in the same worker may be anybody's."""
    before, during = gc.get_threshold(), set[int]()

    def look(number: int) -> None:
        during.add(gc.get_threshold()[0])
        if dies:
            raise Died

    run = make_run()
    attempt = run.attempt(act=look)(batches_of(*COUNTS))

    assert isinstance(attempt.error, Died) == dies
    assert during == {GC_THRESHOLD}
    assert gc.get_threshold() == before
