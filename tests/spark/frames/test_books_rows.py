"""The rows of a partition when it is read again: others, fewer, more, in another order. And an input that ends early,
which proves nothing."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from spark_integration.errors import BadFrame, OtherRows
from spark_integration.runs.tracking import COLUMN
from tests.clock import Clock
from tests.spark.frames.tasks import Died, MakeRun, Run, batch_of, batches_of, expire

ROWS = range(60)


@pytest.fixture
def run(make_run: MakeRun) -> Run:
    return make_run()


def rows(*numbers: Sequence[int]) -> list[pa.RecordBatch]:
    return [batch_of(some) for some in numbers]


def dies_at(run: Run, number: int) -> None:
    """A first attempt that has done 32 rows, and dies in its sink at a later one."""

    def die(one: int) -> None:
        if one == number:
            raise Died

    assert isinstance(run.attempt("first", act=die)(rows(ROWS)).error, Died)


OTHERS: dict[str, tuple[int, list[int]]] = {
    "two rows have changed places among those that are done": (0, [*range(10), 11, 10, *range(12, 60)]),
    "two rows have changed places in the portion in work": (32, [*range(40), 41, 40, *range(42, 60)]),
    "a row is another among those that are done": (0, [*range(10), 99, *range(11, 60)]),
    "a row is another in the portion in work": (32, [*range(40), 99, *range(41, 60)]),
    "rows are missing among those that are done": (0, [*range(10), *range(12, 60)]),
    "rows are missing in the portion in work": (32, [*range(40), *range(42, 60)]),
    "all rows are there twice": (0, [number for number in range(60) for _ in range(2)]),
    "fewer rows than are done": (0, list(range(20))),
    "as many rows as are done": (32, list(range(32))),
    "fewer rows than were begun": (32, list(range(45))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_rows_end_the_job_with_a_sentence(run: Run, name: str) -> None:
    dies_at(run, 50)
    done = run.outcomes()

    after, others = OTHERS[name]
    second = run.attempt("second")(rows(others))

    assert isinstance(second.error, OtherRows)
    assert str(second.error).startswith(f"Partition 0 has different rows after row {after} than at the first reading")
    assert "checkpoint(), a table or stable_source=False" in str(second.error)
    assert run.outcomes() == done
    assert run.rows_sunk("second") == {}


@pytest.mark.parametrize("more", [0, 10])
@pytest.mark.parametrize("others", [[*range(10), 11, 10, *range(12, 20)], [*range(19), 99], [*range(19)]])
def test_other_rows_where_all_are_done(run: Run, others: list[int], more: int) -> None:
    """No portion is in work that would show it; behind them come rows that nobody has seen."""
    run.attempt("first")(rows(range(20))).done()

    second = run.attempt("second")(rows(others, range(20, 20 + more)))

    assert isinstance(second.error, OtherRows)
    assert run.rows_sunk("second") == {}
    run.check(range(20))


def test_rows_that_changed_places_unseen_complete_nothing(make_run: MakeRun) -> None:
    """Two keys whose places the checksum cannot tell, because they differ in their first bit alone. The edge of a
    message is its key, so that the work on one row does not complete the root of the other."""
    clock = Clock()
    run = make_run(clock=clock)
    keys = pa.array([5, 5 - (1 << 63)], type=pa.int64())
    column = pa.StructArray.from_arrays([keys], names=["key"])
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1]), column], names=["id", COLUMN])
    first = run.attempt("first")
    first.wire.dies_at = 3, "before"
    assert isinstance(first([batch]).error, Died)

    run.attempt("second")([batch.take(pa.array([1, 0]))]).done()

    assert run.outcomes()[0] == {}
    expire(run, clock)
    assert run.outcomes() == ({}, {0: 1, 1: 1})
    run.check_roots()


def test_no_rows_where_some_were_done(run: Run) -> None:
    run.attempt("first")(rows(range(20))).done()

    second = run.attempt("second")([])

    assert isinstance(second.error, OtherRows)


def test_fewer_rows_than_a_faster_attempt_has_done(run: Run) -> None:
    """The rows of one attempt end where the other has gone on meanwhile."""

    def end_early() -> Iterator[pa.RecordBatch]:
        yield batch_of(range(20))
        run.attempt("faster")(rows(range(20), range(20, 40))).done()

    first = run.attempt("first")(end_early())

    assert isinstance(first.error, OtherRows)
    run.check(range(40))


def test_more_rows_than_before_are_done_too(run: Run) -> None:
    """Nobody can tell that the first attempt had come to its end."""
    run.attempt("first")(rows(range(20))).done()

    run.attempt("second")(rows(range(30))).done()

    run.check(range(30))
    assert run.rows_sunk("second").keys() == set(range(20, 30))


def test_rows_may_come_in_other_batches(run: Run) -> None:
    """Spark cuts batches by size: only the rows and their order must be those of before."""
    dies_at(run, 50)

    second = run.attempt("second")([*batches_of(7, 0, 1, 30, 0), batch_of(range(38, 60))]).done()

    assert second.rows == 60
    run.check(ROWS)


def test_empty_batches_are_no_end(run: Run) -> None:
    assert run.attempt()([*batches_of(0, 0, 5), batch_of([]), batch_of([5])]).done().rows == 6
    run.check(range(6))


def test_no_rows_at_all(run: Run) -> None:
    assert run.attempt()([]).done().rows == 0
    assert run.attempt("again")([batch_of([])]).done().rows == 0
    assert run.outcomes() == ({}, {})


@pytest.mark.parametrize("seen", [1, 20, 31, 32, 33, 59])
def test_an_input_that_ends_early_proves_nothing(run: Run, seen: int) -> None:
    """As when Spark fails on the other side: the worker sees a normal end."""
    first = run.attempt("first")(rows(range(seen))).done()

    assert first.rows == seen
    run.check(range(seen))
    second = run.attempt("second")(rows(ROWS)).done()

    assert second.rows == 60
    run.check(ROWS)
    assert set(run.begun.values()) == {1}


def test_an_input_that_ends_early_in_a_portion_that_was_begun(run: Run) -> None:
    """None of its rows is complete on account of the end, and a third attempt does them."""
    dies_at(run, 32)
    assert isinstance(run.attempt("second")(rows(range(40))).error, OtherRows)
    run.check_roots()
    assert run.outcomes()[0] == dict.fromkeys(range(32), 1)

    run.attempt("third")(rows(ROWS)).done()

    run.check(ROWS)


def test_an_input_that_raises(run: Run) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch_of(range(40))
        raise OSError("the other side is gone")

    assert isinstance(run.attempt("first")(failing()).error, OSError)
    assert run.pending() == 0
    run.attempt("second")(rows(ROWS)).done()

    run.check(ROWS)


def test_messages_with_the_same_id(run: Run) -> None:
    """Each of their rows is a message of its own."""
    run.attempt()(rows([1, 1, 2, 1])).done()

    assert run.outcomes()[0] == {1: 3, 2: 1}
    assert run.pending() == 0


def test_rows_without_a_message_id_are_refused(run: Run) -> None:
    batch = batch_of([1, 2, 3])
    ids = pa.array([1, None, 3], type=pa.int64())

    one = run.attempt()([batch.set_column(0, "id", ids)])

    assert isinstance(one.error, BadFrame)
    assert "1 of 3 rows that were read together have no message id" in str(one.error)
    assert run.outcomes() == ({}, {})


@pytest.mark.parametrize("key", [0, -1, 1, -(1 << 63), (1 << 63) - 1])
def test_any_key_will_do(run: Run, key: int) -> None:
    column = pa.StructArray.from_arrays([pa.array([key], type=pa.int64())], names=["key"])

    run.attempt()([pa.RecordBatch.from_arrays([pa.array([7]), column], names=["id", COLUMN])]).done()

    run.check([7])


def test_rows_that_are_left_out_are_complete(make_run: MakeRun) -> None:
    """Without a call of the sink."""
    run = make_run()
    batch = batch_of(range(6))
    fields = [batch.column(COLUMN).field("key"), pa.array([number % 2 == 0 for number in range(6)])]
    column = pa.StructArray.from_arrays(fields, names=["key", "keep"])

    run.attempt()([batch.set_column(1, COLUMN, column)]).done()

    assert run.outcomes() == (dict.fromkeys(range(6), 1), {})
    assert run.rows_sunk() == dict.fromkeys((0, 2, 4), 1)
