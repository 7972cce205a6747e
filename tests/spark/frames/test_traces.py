"""Runs of tracked frames in traces: a span for the run, and for a bounded number of its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, Anchors, Inbox, new_edges
from spark_integration import track
from spark_integration.errors import JobFailed
from spark_integration.runs.tracking import MOST_TRACED
from tests.spans import Spans, attribute, is_failed, spans
from tests.spark.frames.books import books
from tests.spark.frames.conftest import MakeFrame

__all__ = ["spans"]

TRACE = bytes(range(1, 25)) + b"\1"
Numbers = Callable[[int], DataFrame]


def fail_from(limit: int) -> Callable[[Row], Row]:
    def check(row: Row) -> Row:
        if row.number >= limit:
            raise ValueError("too large")
        return row

    return check


@pytest.mark.parametrize("sink", ["sink", "collect"])
def test_a_run_is_a_span_and_its_failed_messages_are_below_it(tracked: MakeFrame, spans: Spans, sink: str) -> None:
    """One whose tasks keep the books, and one whose driver does."""
    frame = tracked(1000).map(fail_from(998), "id string, number long")
    frame.sink(lambda batch: None) if sink == "sink" else frame.collect()

    [run] = spans.named("run numbers")
    assert [attribute(run, name) for name in ("tracked", "completed", "failed")] == [1000, 998, 2]
    assert not is_failed(run)
    failed = spans.named("numbers")
    assert {attribute(one, "message_id") for one in failed} == {"m998", "m999"}
    assert {one.status.description for one in failed} == {"ValueError: too large"}
    assert {one.parent.span_id for one in failed if one.parent} == {run.context.span_id}
    assert len(spans.all()) == 3


def test_a_run_with_many_failures_has_a_bounded_number_of_spans(tracked: MakeFrame, spans: Spans) -> None:
    tracked(1000).map(fail_from(0), "id string, number long").sink(lambda batch: None)
    assert len(spans.all()) == 1 + MOST_TRACED


def test_a_run_that_fails_is_marked(tracked: MakeFrame, spans: Spans) -> None:
    with pytest.raises(JobFailed):
        tracked(10).with_column("number", F.raise_error(F.lit("no such table"))).collect()
    [run] = spans.named("run numbers")
    assert "no such table" in str(run.status.description)


def test_the_first_of_the_rows_that_are_handed_over_carry_the_trace(
    tracked: MakeFrame, acker: Acker, spans: Spans
) -> None:
    frame = tracked(1000).to_df()
    headers = [row.anchors for row in frame.collect()]

    [run] = spans.named("run numbers")
    assert [len(one) for one in headers].count(41) == MOST_TRACED
    assert [len(one) for one in headers].count(16) == 1000 - MOST_TRACED
    assert {row.anchors for row in frame.collect()} == set(headers)
    for header in headers:
        anchors = Anchors.from_bytes(header)
        with anchors.span("other"):
            acker.ack(list(anchors), list(anchors.values()), token=header)
    assert books(acker) == (1000, 1000, 0, 0)
    others = spans.named("other")
    assert len(others) == MOST_TRACED
    assert {one.parent.span_id for one in others if one.parent} == {run.context.span_id}


def test_a_message_that_came_with_a_trace_stays_in_it_through_two_more_jobs(
    spark: SparkSession, acker: Acker, spans: Spans
) -> None:
    roots, edges = acker.allocate("source", 4), new_edges(4)
    acker.init(roots, edges)
    rows = [
        (place, bytearray(Anchors.traced({root: edge}, TRACE if place < 2 else b"").to_bytes()))
        for place, (root, edge) in enumerate(zip(roots.tolist(), edges.tolist(), strict=True))
    ]
    received = spark.createDataFrame(rows, "number long, anchors binary").repartition(2)

    second = track(received, anchors="anchors", acker=acker, name="second", stable_source=True).to_df()
    kept = spark.createDataFrame(second.collect(), second.schema)
    third = track(kept, anchors="anchors", acker=acker, name="third", stable_source=True)
    third.map(fail_from(1), "number long").sink(lambda batch: None)

    trace_id = int.from_bytes(TRACE[:16], "big")
    in_trace = [span for span in spans.all() if span.context.trace_id == trace_id]
    by_id = {span.context.span_id: span for span in in_trace}
    assert sorted(span.name for span in in_trace) == ["second", "second", "third", "third"]
    assert [span.status.description for span in in_trace if is_failed(span)] == ["ValueError: too large"]
    assert all(by_id[span.parent.span_id].name == "second" for span in in_trace if span.name == "third" and span.parent)
    assert books(acker, "source") == (4, 1, 3, 0)


def test_rows_that_tasks_hand_over_are_in_one_trace_through_two_more_programs(
    spark: SparkSession, tracked: MakeFrame, acker: Acker, spans: Spans, tmp_path: Path
) -> None:
    def write(name: str) -> Callable[[pa.RecordBatch], None]:
        def sink(batch: pa.RecordBatch) -> None:
            if batch.num_rows:
                path = tmp_path / name / f"{batch.column('anchors')[0].as_py()[:16].hex()}.parquet"
                pq.write_table(pa.Table.from_batches([batch]), path)

        (tmp_path / name).mkdir()
        return sink

    def twice(row: Row) -> list[tuple[str, int]]:
        return [(row.id, row.number), (row.id, row.number)]

    tracked(500).flat_map(twice, "id string, number long").sink(write("first"), anchors="anchors")
    headers = [row.anchors for row in spark.read.parquet(str(tmp_path / "first")).collect()]
    traced = {bytes(one[:8]) for one in headers if len(one) == 41}
    assert 0 < len(traced) < MOST_TRACED
    assert [len(one) for one in headers].count(16) == 1000 - 2 * len(traced)

    received = track(spark.read.parquet(str(tmp_path / "first")), acker=acker, name="second", anchors="anchors")
    received.sink(write("second"), anchors="anchors")
    rows = [row.anchors for row in spark.read.parquet(str(tmp_path / "second")).collect()]
    inbox = Inbox(acker, name="third")
    deliveries = [one for one in inbox.receive(rows) if one]
    [bad, *_] = [one for one in deliveries if one.anchors.trace]
    inbox.fail(bad, "no such customer")
    inbox.ack(one for one in deliveries if one is not bad)

    [run] = spans.named("run numbers")
    in_trace = [span for span in spans.all() if span.context.trace_id == run.context.trace_id]
    counts = Counter(span.name for span in in_trace)
    assert counts == {"run numbers": 1, "second": len(traced), "third": 2 * len(traced)}
    assert [(span.name, span.status.description) for span in in_trace if is_failed(span)] == [
        ("third", "no such customer")
    ]
    [second] = spans.named("run second")
    assert all((span.start_time or 0) <= (second.end_time or 0) for span in spans.named("second"))
    assert min(span.start_time or 0 for span in spans.named("second")) <= (second.start_time or 0)
    assert books(acker) == (500, 499, 1, 0)


def test_nothing_is_carried_when_the_run_is_not_sampled(
    tracked: MakeFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    assert {len(row.anchors) for row in tracked(10).to_df().collect()} == {16}
    path = tmp_path / "lengths"

    def note(batch: pa.RecordBatch) -> None:
        with path.open("a") as file:
            file.write("".join(f"{len(one)}\n" for one in batch.column("anchors").to_pylist()))

    tracked(10, spout="others").sink(note, anchors="anchors")
    assert path.read_text() == "16\n" * 10


def test_rows_that_come_from_several_messages_carry_one_trace(acker: Acker, numbers: Numbers, spans: Spans) -> None:
    left = track(numbers(3), acker=acker, spout="left", message_id="id", stable_source=True)
    right = track(numbers(3), acker=acker, spout="right", message_id="id", stable_source=True)
    rows = left.join(right, "number").select("number").to_df().collect()
    assert {len(row.anchors) for row in rows} == {2 * 16 + 25}
    assert all(len(Anchors.from_bytes(bytes(row.anchors))) == 2 for row in rows)
