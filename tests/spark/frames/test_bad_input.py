"""Mistakes get one clear sentence, before or where they happen, and nothing is acked by halves."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, DeadLetters
from redis_acker.retries.book import RetryBook
from redis_acker.store.progress import RunProgress
from spark_integration import BadFrame, JobFailed, StoreOutOfReach, Summary, TrackedFrame, WrongOutput, track, workers
from spark_integration.errors import RunReplaced
from spark_integration.frames.rows import Rows
from spark_integration.frames.steps import FailedRows, RowStep
from spark_integration.runs.books import Books, TaskBooks
from spark_integration.workers import StoreAddress
from tests.backends import Servers
from tests.spark.frames.books import books
from tests.spark.frames.conftest import MakeFrame
from tests.spark.frames.tasks import batches_of

Numbers = Callable[[int], DataFrame]


def sink(frame: TrackedFrame) -> Summary:
    return frame.sink(lambda batch: None)


def test_a_message_id_that_is_no_column(numbers: Numbers, acker: Acker) -> None:
    with pytest.raises(BadFrame, match=r"no column 'key' for the message id: the frame has \['id', 'number'\]"):
        track(numbers(3), acker=acker, spout="numbers", message_id="key")


def test_a_message_id_that_is_null(numbers: Numbers, acker: Acker) -> None:
    frame = numbers(10).withColumn("id", F.when(F.col("number") > 3, F.col("id")))
    with pytest.raises(BadFrame, match=r"rows that were read together have no message id: fill the column, or leave"):
        sink(track(frame, acker=acker, spout="numbers", message_id="id"))
    with pytest.raises(BadFrame, match=r"\d of \d+ rows that were read together have no message id: fill the column"):
        sink(track(frame, acker=acker, spout="others", message_id="id").order_by("number"))
    with pytest.raises(BadFrame, match=r"4 of 10 rows have no message id: fill column 'id', or leave them out"):
        track(frame, acker=acker, spout="numbers", message_id="id").to_df()
    assert books(acker) == (0, 0, 0, 0)
    initialised, _, failed, pending = books(acker, "others")
    assert (initialised, pending) == (failed, 0)
    assert not RetryBook(acker, "others").load()


def test_a_message_id_that_is_not_unique(numbers: Numbers, acker: Acker) -> None:
    """Each row is a message of its own, but if one fails, so do the others of its id."""
    frame = numbers(10).withColumn("id", F.when(F.col("number") == 3, "m4").otherwise(F.col("id")))

    def strict(row: Row) -> Row:
        if row.number == 4:
            raise ValueError("four")
        return row

    tracked = track(frame, acker=acker, spout="numbers", message_id="id").order_by("number")
    summary = tracked.map(strict, "id string, number long").sink(lambda batch: None)

    assert (summary.tracked, summary.completed, summary.failed) == (10, 8, 2)
    assert {one.message_id for one in summary.failures} == {"m4"}
    with pytest.raises(BadFrame, match=r"Message id 'm4' is not unique \(1 of 10 rows repeat one\)"):
        tracked.to_df()


def test_a_message_id_of_another_type(numbers: Numbers, acker: Acker) -> None:
    with pytest.raises(BadFrame, match=r"Column 'id' is double, and message ids are strings, bytes or integers: cast"):
        track(numbers(3).withColumn("id", F.lit(1.5)), acker=acker, spout="numbers", message_id="id")


def test_a_message_id_that_is_too_long(numbers: Numbers, acker: Acker) -> None:
    frame = numbers(3).withColumn("id", F.concat("id", F.repeat(F.lit("x"), 2000)))
    with pytest.raises(Exception, match=r"A message id of 2002 bytes is over the limit of 1024"):
        sink(track(frame, acker=acker, spout="numbers", message_id="id"))
    assert books(acker) == (0, 0, 0, 0)


def test_a_column_with_the_name_of_the_tracking_column(numbers: Numbers, acker: Acker, tracked: MakeFrame) -> None:
    with pytest.raises(BadFrame, match=r"has a column '__acker', the name of the tracking column: rename yours"):
        track(numbers(3).withColumn("__ACKER", F.lit(1)), acker=acker, spout="numbers", message_id="id")
    with pytest.raises(BadFrame, match=r"'__acker' is the name of the tracking column: choose another"):
        tracked(3).with_column("__acker", F.lit(1))
    with pytest.raises(BadFrame, match=r"'__acker' is the name of the tracking column: choose another"):
        tracked(3).map(lambda row: row, "__acker long")


def test_columns_that_python_steps_cannot_take(numbers: Numbers, acker: Acker) -> None:
    with pytest.raises(BadFrame, match=r"take no columns|cannot take columns with '.' or '`' in their names"):
        track(numbers(3).withColumnRenamed("number", "a.b"), acker=acker, spout="numbers", message_id="id")


def test_mistakes_are_no_attempts(tracked: MakeFrame, numbers: Numbers, acker: Acker) -> None:
    """What never began is neither failed nor lost, however often it is tried."""
    long_ids = numbers(3).withColumn("id", F.concat("id", F.repeat(F.lit("x"), 2000)))
    no_ids = numbers(3).withColumn("id", F.lit(None).cast("string"))
    others = track(no_ids, acker=acker, spout="others", message_id="id", stable_source=True)
    joined = tracked(3).join(others.select("number"), "number")
    lock = threading.Lock()
    for _ in range(4):
        with pytest.raises(Exception, match="over the limit"):
            sink(track(long_ids, acker=acker, spout="numbers", message_id="id", stable_source=True))
        with pytest.raises(BadFrame, match="3 of 3 rows that were read together have no message id"):
            sink(joined)
        with pytest.raises(Exception, match="pickle"):
            tracked(3).sink(lambda batch: lock.acquire())
    initialised, _, failed, pending = books(acker)
    assert (initialised, pending) == (failed, 0)
    assert not RetryBook(acker, "numbers").load()
    assert len(DeadLetters(acker)) == 0


def test_a_sink_that_would_do_nothing(tracked: MakeFrame) -> None:
    def store(batch: object) -> Any:
        yield batch

    with pytest.raises(BadFrame, match="a generator or async function would do nothing"):
        tracked(3).sink(store)


def test_a_group_by_texts_that_are_equal_by_a_collation(numbers: Numbers, acker: Acker) -> None:
    frame = numbers(3).withColumn("id2", F.expr("id collate UTF8_LCASE"))
    with pytest.raises(BadFrame, match=r"group_by\(\) cannot group by 'id2'"):
        track(frame, acker=acker, spout="numbers", message_id="id").group_by("id2")


def test_a_streaming_frame(spark: SparkSession, acker: Acker) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(BadFrame, match=r"call track_stream\(\), or track\(\) on each micro-batch"):
        track(stream, acker=acker, spout="numbers", message_id="value")


def test_a_mistake_in_a_step_is_reported_where_it_is_made(tracked: MakeFrame) -> None:
    with pytest.raises(Exception, match="nothing"):
        tracked(3).where("nothing > 3")
    with pytest.raises(BadFrame, match=r"'word strin' is not a schema, such as 'word string, count long'"):
        tracked(3).map(lambda row: row, "word strin")
    with pytest.raises(BadFrame, match=r"group_by\(\) takes names of columns, and 'nothing' is none of"):
        tracked(3).group_by("nothing")
    with pytest.raises(BadFrame, match="kind must be 'arrow' or 'pandas', not 'polars'"):
        tracked(3).map_batches(lambda batch: batch, "id string", kind="polars")  # type: ignore[arg-type]
    with pytest.raises(BadFrame, match="per must be 'row', 'batch' or 'partition', not 'table'"):
        tracked(3).sink(print, per="table")  # type: ignore[arg-type]
    with pytest.raises(BadFrame, match="concurrency must be a whole number of calls from 1 to 1000, not 0"):
        tracked(3).sink(print, per="row", concurrency=0)
    with pytest.raises(BadFrame, match="concurrency is for per='row' and per='batch': a partition is one call"):
        tracked(3).sink(print, per="partition", concurrency=2)
    with pytest.raises(BadFrame, match="sink_timeout_s must be a number of seconds above 0, not -1"):
        tracked(3).sink(print, sink_timeout_s=-1)


@pytest.mark.parametrize(
    ("gives", "text"),
    [
        (lambda row: (1, 2), r"a row must be a tuple, list, dict or Row with \['a'\], not \(1, 2\)"),
        (lambda row: 7, r"a row must be a tuple, list, dict or Row with \['a'\], not 7"),
        (lambda row: {"b": 1}, r"a row has the fields \['b'\], declared are \['a'\]"),
        (lambda row: ("x",), r"Could not convert 'x' .* declared as a int32"),
    ],
    ids=["too wide", "no row", "other fields", "other type"],
)
def test_a_step_whose_rows_never_fit_its_schema(gives: Callable[[Row], object], text: str) -> None:
    step = RowStep("wrong", gives, pa.schema([("a", pa.int32())]))
    rows = Rows.of(pa.RecordBatch.from_pydict({"number": [1, 2, 3]}))

    with pytest.raises(WrongOutput, match=rf"Step 'wrong' gives rows that do not fit its schema: {text}"):
        step.apply(rows, FailedRows(is_replay=False), as_values=True)


def test_a_wrong_step_ends_the_job(tracked: MakeFrame, acker: Acker) -> None:
    with pytest.raises(WrongOutput, match=r"Step 'wrong' gives rows that do not fit its schema: a row must be a tuple"):
        sink(tracked(5).map(lambda row: 7, "a int", name="wrong"))
    assert books(acker) == (5, 0, 5, 0)


def test_a_single_row_that_does_not_fit_fails_alone(tracked: MakeFrame, acker: Acker) -> None:
    def mostly(row: Row) -> tuple[object]:
        return ("three" if row.number == 3 else row.number,)

    summary = tracked(6).map(mostly, "number long").sink(lambda batch: None)

    [failure] = summary.failures
    assert (failure.message_id, failure.step) == ("m3", "mostly")
    assert "Could not convert 'three'" in failure.error


def test_a_batch_function_with_other_columns(tracked: MakeFrame, acker: Acker) -> None:
    with pytest.raises(WrongOutput, match=r"'select' gives the columns \['id'\], 2 rows for 5, but was declared with"):
        sink(tracked(5).repartition(1).map_batches(lambda one: one.select(["id"])[:2], "number long", name="select"))
    assert books(acker) == (5, 0, 5, 0)


def test_a_step_that_ends_the_worker_fails_the_job(tracked: MakeFrame, acker: Acker) -> None:
    def die(row: Row) -> Row:
        import os

        os._exit(1)

    with pytest.raises(JobFailed, match=r"The Spark job failed, and with it the messages in progress.*worker exited"):
        sink(tracked(5).map(die, "id string"))
    assert books(acker) == (5, 0, 5, 0)
    assert not RetryBook(acker, "numbers").load()  # the failure of a job is no attempt at its messages


def test_a_task_that_outlives_its_job_begins_nothing(tracked: MakeFrame, acker: Acker) -> None:
    """Spark does not wait for the other tasks of a job that has failed. The run that goes on has the same name."""

    def die(batch: pa.RecordBatch) -> None:
        import os

        os._exit(1)

    with pytest.raises(JobFailed):
        tracked(5).sink(die)
    number = acker.spout_number("numbers")
    run = RunProgress(acker, number).stored_name()
    none = np.zeros(0, dtype=np.int64)
    late = TaskBooks(Books(StoreAddress.of(acker), run, number, "id", 0, 3, none, []), 7, lambda batch: {})

    with pytest.raises(RunReplaced):
        late.run(iter(batches_of(3)))

    assert books(acker) == (5, 0, 5, 0)
    assert sink(tracked(5)).completed == 5


def test_a_store_that_only_the_driver_reaches(
    tracked: MakeFrame, acker: Acker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What workers are told leads nowhere, as behind a firewall."""
    import pickle

    real = workers.StoreAddress.of

    def nowhere(one: Acker) -> workers.StoreAddress:
        state = one.__getstate__()
        state["urls"] = ["redis://127.0.0.1:1/0"]
        state["retry_for_s"] = 0
        made = pickle.dumps(_Elsewhere(state))
        return workers.StoreAddress(made, real(one).driver_host)

    monkeypatch.setattr(workers.StoreAddress, "of", nowhere)

    with pytest.raises(StoreOutOfReach, match=r"worker on host '.+' cannot use the store, though the driver on host"):
        sink(tracked(5).map(lambda row: row, "id string, number long"))
    assert books(acker) == (0, 0, 0, 0)


class _Elsewhere:
    """Pickles as an Acker with another address."""

    def __init__(self, state: dict[str, object]) -> None:
        self._state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._state,)


def _restore(state: dict[str, object]) -> Acker:
    acker = Acker.__new__(Acker)
    acker.__setstate__(state)
    return acker


def test_frames_that_do_not_belong_together(
    tracked: MakeFrame, numbers: Numbers, servers: Servers, namespace: str
) -> None:
    with (
        Acker(servers.get("redis-7.0").url, namespace=f"{namespace}-2") as other,
        pytest.raises(BadFrame, match="Both frames must be tracked in one namespace"),
    ):
        tracked(3).union(track(numbers(3), acker=other, spout="others", message_id="id"))
    with pytest.raises(BadFrame, match=r"call track\(\) on the other first"):
        tracked(3).union(numbers(3))  # type: ignore[arg-type]
    with pytest.raises(BadFrame, match=r"Two inputs of one job have the same spout, of \['numbers', 'numbers'\]"):
        sink(tracked(3).union(tracked(3)))
    with pytest.raises(BadFrame, match="replays within one call are for jobs with one frame of messages"):
        sink(tracked(3, replays=1).union(tracked(3, spout="others")))


def test_rows_to_go_on_with_that_have_no_anchors(numbers: Numbers, acker: Acker) -> None:
    with pytest.raises(BadFrame, match="There is no column 'anchors' of bytes for the anchors: the frame is struct"):
        track(numbers(3), anchors="anchors", acker=acker, name="next")
    frame = numbers(3).withColumn("anchors", F.when(F.col("number") > 0, F.lit(b"x" * 16)))
    with pytest.raises(BadFrame, match=r"1 of . rows have no anchors in column 'anchors'"):
        sink(track(frame, anchors="anchors", acker=acker, name="next"))
    with pytest.raises(Exception, match="Anchors are a multiple of 16 bytes, and b'short'"):
        sink(track(numbers(3).withColumn("anchors", F.lit(b"short")), anchors="anchors", acker=acker, name="next"))
