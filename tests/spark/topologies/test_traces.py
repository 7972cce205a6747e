"""A message's way through executors is in the trace that its spout began."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from redis_acker import Anchors, BasicBolt, Bolt, OutputCollector, TaskContext, Tuple
from spark_integration.topologies.plan import Plan, make_plan
from spark_integration.topologies.task import Level, Task
from spark_integration.topologies.wire import TupleDelivery, pack_values, unpack_deliveries
from tests.spans import FileExporter, Spans, attribute, spans
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Relay, chain

__all__ = ["spans"]

TRACE = bytes(range(1, 25)) + b"\1"


class Traced(BasicBolt):
    """Sets up OpenTelemetry where it runs; fails what is bad."""

    fields = ("value",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            provider = TracerProvider()
            # Its own turn would come in an hour, when the worker is gone.
            provider.add_span_processor(BatchSpanProcessor(FileExporter(self.path), schedule_delay_millis=3_600_000))
            trace.set_tracer_provider(provider)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        if tup["value"] == "bad":
            raise ValueError("no good")
        emit(tup["value"])


def test_spans_of_executors_are_in_the_trace_of_the_message(bench: Bench, spans: Spans, tmp_path: Path) -> None:
    path = tmp_path / "spans"
    bench.run(chain(["good", "bad"], Traced(path), Traced(path)))

    messages = {span.context.span_id: span for span in spans.all()}
    assert len(spans.traces()) == 2
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(messages[parent].context.trace_id == trace_id for _, trace_id, _, parent, _ in found)
    assert sorted((name, error) for name, *_, error in found) == [
        *[("bolt0", "")],
        *[("bolt0", "ValueError: no good")] * 3,
        ("bolt1", ""),
    ]
    [completed] = [span for span in spans.all() if attribute(span, "outcome") == "completed"]
    assert {name for name, _, _, parent, _ in found if parent == completed.context.span_id} == {"bolt0", "bolt1"}


class HandsOver(Bolt):
    def execute(self, tup: Tuple) -> None:
        headers.append(self.collector.hand_over(tup).to_bytes())
        self.collector.emit(["on"], anchors=tup)
        self.collector.ack(tup)

    fields = ("value",)


headers: list[bytes] = []
"""What the bolt above has sent, in this process."""


def attempt(plan: Plan) -> list[TupleDelivery]:
    """What a task of the first level sends on."""
    delivery = TupleDelivery(pack(">Q", 1), 0, Anchors.traced({1: 2}, TRACE).to_bytes(), pack_values(["a"]))
    rows = [row for rows in Task(Level(plan, 0, 1), 0).rows([delivery]) for row in rows]
    return unpack_deliveries(row.data for row in rows if row.task >= 0)


def test_a_worker_without_opentelemetry_hands_the_trace_on() -> None:
    [sent] = attempt(make_plan(chain(["a"], Relay(), Relay()), None))
    assert len(sent.anchors) == 16 + 25
    assert sent.anchors.endswith(TRACE)


def test_a_task_that_runs_again_sends_the_same_bytes_again(spans: Spans) -> None:
    """Receivers make tokens of them."""
    plan = make_plan(chain(["a"], HandsOver(), Relay()), None)
    headers.clear()
    first, second = attempt(plan), attempt(plan)
    assert len(spans.named("bolt0")) == 2
    assert headers[0] == headers[1]
    assert headers[0].endswith(TRACE)
    assert first == second
