"""Two attempts at one partition at once, of which one sleeps where it hurts most."""

import pytest

from redis_acker import Rotator
from redis_acker.store.run_records import PENDING, Place
from spark_integration.errors import RunReplaced
from spark_integration.runs.spout import TAKEN_OVER
from tests.clock import Clock
from tests.spark.frames.tasks import Attempt, Died, Gate, MakeRun, Refused, Run, batches_of, expire, forget_finished

COUNTS = 20, 20
ROWS = range(sum(COUNTS))
TIMEOUT_MS = 30_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(make_run: MakeRun, clock: Clock) -> Run:
    return make_run(clock=clock, timeout_ms=TIMEOUT_MS)


def sleep_at(attempt: Attempt, call: str, number: int = 0) -> Gate:
    """Lets an attempt sleep before its call of some script, the number of times it was called before."""
    gate = Gate()
    left = [number]

    def before(name: str) -> None:
        if name == call:
            left[0] -= 1
            if left[0] < 0:
                gate()

    attempt.wire.before = before
    return gate


def in_sink(run: Run, at: int, *, refused: int = -1) -> tuple[Attempt, Gate]:
    """An attempt that sleeps in its sink before it takes a row, and another row it refuses."""
    gate = Gate()

    def act(number: int) -> None:
        if number == at:
            gate()
        if number == refused:
            raise Refused

    return run.attempt("zombie", act=act), gate


@pytest.mark.parametrize("call", ["begin_portion", "init", "keep_portion", "ack"])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("rest", [0, TIMEOUT_MS // 4, TIMEOUT_MS, 5 * TIMEOUT_MS])
def test_one_sleeps_at_a_call_while_another_does_everything(
    run: Run, clock: Clock, call: str, number: int, rest: int
) -> None:
    zombie = run.attempt("zombie")
    gate = sleep_at(zombie, call, number)
    thread = zombie.start(batches_of(*COUNTS))
    gate.wait_reached()

    run.attempt("second")(batches_of(*COUNTS)).done()
    assert run.outcomes()[0] == dict.fromkeys(ROWS, 1)
    _pass(run, clock, rest)
    gate.open()
    thread.join()

    zombie.done()
    run.check_roots()
    expire(run, clock)
    run.check_roots()
    run.check(ROWS)
    if (call, number) == ("keep_portion", 0):  # it has sunk nothing by then, and is told that there is no need
        assert not run.rows_sunk("zombie")


def test_one_sleeps_in_its_sink_while_another_does_everything(run: Run, clock: Clock) -> None:
    zombie, gate = in_sink(run, 25)
    thread = zombie.start(batches_of(*COUNTS))
    gate.wait_reached()

    run.attempt("second")(batches_of(*COUNTS)).done()
    gate.open()
    thread.join()

    zombie.done()
    run.check(ROWS)
    assert set(run.begun.values()) <= {1, 2}


def test_one_sleeps_so_long_that_another_takes_over_with_new_roots(run: Run, clock: Clock) -> None:
    zombie, gate = in_sink(run, 5)
    thread = zombie.start(batches_of(*COUNTS))
    gate.wait_reached()

    clock.advance(2 * TIMEOUT_MS)
    Rotator(run.acker).once()
    second = run.attempt("second")
    second(batches_of(*COUNTS)).done()
    gate.open()
    thread.join()

    zombie.done()
    expire(run, clock)
    run.check_roots()
    completed, failed = run.outcomes()
    assert completed == dict.fromkeys(ROWS, 1)
    assert failed == dict.fromkeys(range(20), 1)  # the roots of the first, which timed out


def test_one_that_wakes_up_gives_its_work_to_the_new_roots(run: Run, clock: Clock) -> None:
    """The other one has taken the portion over, and dies in its sink: what the first has sunk is not lost."""
    zombie, gate = in_sink(run, 5)
    thread = zombie.start(batches_of(*COUNTS))
    gate.wait_reached()
    clock.advance(TIMEOUT_MS // 2)
    other, other_gate = in_sink(run, 0)
    other_thread = other.start(batches_of(*COUNTS))
    other_gate.wait_reached()

    gate.open()
    thread.join()
    zombie.done()
    other_gate.open()
    other_thread.join()

    other.done()
    expire(run, clock)
    run.check_roots()
    assert run.outcomes()[0] == dict.fromkeys(ROWS, 1)


@pytest.mark.parametrize("timeouts", [0.5, 2])
@pytest.mark.parametrize("dies_before", ["fail", "init", "keep_portion"])
def test_roots_that_were_replaced_are_no_attempts_at_their_messages(
    run: Run, clock: Clock, timeouts: float, dies_before: str
) -> None:
    """Whoever takes a portion over fails its old roots, in a way that the driver knows. If they have timed out before,
    the driver learns which messages are complete all the same. The first to take it over dies on the way."""
    first, _ = in_sink(run, -1)
    first.wire.dies_at = 3, "before"
    assert isinstance(first(batches_of(20)).error, Died)
    clock.advance(int(timeouts * TIMEOUT_MS))
    Rotator(run.acker).once()

    def die(name: str) -> None:
        if name == dies_before:
            raise Died

    second = run.attempt("second")
    second.wire.before = die
    assert isinstance(second(batches_of(20)).error, Died)
    run.attempt("third")(batches_of(20)).done()

    expire(run, clock)
    with run.acker.failures(run.spout_name) as failures, run.acker.completions(run.spout_name) as completions:
        failed = [(event.reason, event.component) for event in failures.consume()]
        complete = {one for event in completions.consume() for one in event.message_ids}
    assert set(failed) == {("failed", TAKEN_OVER) if timeouts < 1 else ("timeout", "")}
    assert complete == set(range(20))


def test_what_one_has_failed_the_other_does_not_complete(run: Run, clock: Clock) -> None:
    """The portion has new roots by the time that the sink of the first has returned, and the one who took it over dies
    in its sink. A third does not take what the first has sunk for the work on the new roots."""
    zombie, gate = in_sink(run, 5, refused=3)
    thread = zombie.start(batches_of(*COUNTS))
    gate.wait_reached()
    clock.advance(TIMEOUT_MS // 2)

    def die(number: int) -> None:
        raise Died

    assert isinstance(run.attempt("second", act=die)(batches_of(*COUNTS)).error, Died)
    last = sleep_at(zombie, "ack")
    gate.open()
    last.wait_reached()
    third = run.attempt("third", act=lambda number: None)
    third(batches_of(*COUNTS)).done()
    last.open()
    thread.join()

    expire(run, clock)
    run.check_roots()
    completed, failed = run.outcomes()
    assert completed == dict.fromkeys(set(ROWS) - {3}, 1)
    assert failed[3] == 2  # its first root timed out or failed, and so did the second


def test_one_who_has_sunk_but_not_acked_is_helped(run: Run) -> None:
    """The sink has returned, so another only acks."""
    zombie = run.attempt("zombie")
    gate = sleep_at(zombie, "ack")
    thread = zombie.start(batches_of(*COUNTS))
    gate.wait_reached()

    second = run.attempt("second")(batches_of(*COUNTS)).done()
    gate.open()
    thread.join()

    zombie.done()
    run.check(ROWS)
    assert run.rows_sunk("second").keys() == set(range(20, 40))
    assert second.wire.calls[:2] == ["begin_portion", "ack"]


@pytest.mark.parametrize("timeouts", [0.5, 2, 10])
def test_one_has_died_before_it_acked_what_it_had_sunk(run: Run, clock: Clock, timeouts: float) -> None:
    """A long time ago, so that its roots may be over by now. Another acks them in its place as long as they are not;
    otherwise they have timed out, and come again as failures. Nothing is sunk twice."""
    first = run.attempt("first")
    first.wire.dies_at = 4, "before"
    assert isinstance(first(batches_of(*COUNTS)).error, Died)
    assert first.wire.calls == ["begin_portion", "init", "keep_portion", "keep_portion"]
    for _ in range(20):
        clock.advance(int(timeouts * TIMEOUT_MS / 20))
        Rotator(run.acker).once()

    run.attempt("second")(batches_of(*COUNTS)).done()

    expire(run, clock)
    run.check_roots()
    in_time = timeouts < 1
    assert run.outcomes()[0] == dict.fromkeys(ROWS if in_time else range(20, 40), 1)
    assert run.outcomes()[1] == ({} if in_time else dict.fromkeys(range(20), 1))
    assert set(run.begun.values()) == {1}


def test_one_is_kept_alive_while_another_has_done_its_portion_and_died(run: Run, clock: Clock) -> None:
    """Its keeper goes on, until the store has forgotten that the roots are complete: they do not complete again."""
    zombie, gate = in_sink(run, 5)
    thread = zombie.start(batches_of(20))
    gate.wait_reached()
    second = run.attempt("second")
    second.wire.dies_at = 5, "before"
    assert isinstance(second(batches_of(20)).error, Died)
    assert second.wire.calls == ["begin_portion", "extend", "keep_portion", "keep_portion", "ack"]
    place = Place("0:0", 0, 0)
    portion = run.progress.begin(place, 20, 0)
    for _ in range(20):
        clock.advance(TIMEOUT_MS // 4)
        run.progress.reach(place, portion, PENDING)
        Rotator(run.acker).once()

    gate.open()
    thread.join()

    zombie.done()
    expire(run, clock)
    run.check(range(20))


@pytest.mark.parametrize("timeouts", [0.4, 0.6, 1.1, 4])
def test_one_was_cut_off_from_the_store_while_it_was_in_its_sink(run: Run, clock: Clock, timeouts: float) -> None:
    """Nobody kept its roots alive, so that they time out, and later are forgotten. What it has sunk counts."""
    one, gate = in_sink(run, 5)
    thread = one.start(batches_of(20))
    gate.wait_reached()
    for _ in range(8):
        clock.advance(int(TIMEOUT_MS * timeouts / 8))
        Rotator(run.acker).once()

    gate.open()
    thread.join()

    one.done()
    expire(run, clock)
    run.check_roots()
    completed, failed = run.outcomes()
    assert completed == dict.fromkeys(range(20), 1)
    assert failed == ({} if timeouts < 1 else dict.fromkeys(range(20), 1))
    assert set(run.begun.values()) == {1}


def test_the_end_of_a_run_ends_its_tasks(run: Run) -> None:
    zombie, gate = in_sink(run, 5)
    thread = zombie.start(batches_of(*COUNTS))
    gate.wait_reached()

    run.progress.drop()
    gate.open()
    thread.join()

    assert isinstance(zombie.error, RunReplaced)
    assert "another has taken its place, or it was dropped" in str(zombie.error)
    assert run.outcomes()[0] == {}


def _pass(run: Run, clock: Clock, ms: int) -> None:
    """Lets time pass; after several timeouts the store has forgotten what is over."""
    if ms > 4 * TIMEOUT_MS:
        forget_finished(run.acker, clock)
    clock.advance(ms)
    Rotator(run.acker).once()
