"""A message's way is one trace: spout, bolts, replays, other programs; and nothing is done where nobody traces."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler, SamplingResult

from redis_acker import Anchors, Bolt, FailedTuple, LocalRunner, OutputCollector, Tuple
from tests.components.store import Store
from tests.spans import Spans, attribute, is_failed, spans
from tests.topology.parts import NO_PAUSE, SPOUT_NAME, Does, Note, Raises, Relay, run, topology
from tests.topology.test_joins import Pairs

__all__ = ["spans"]


def test_the_way_of_a_message_is_one_trace(store: Store, spans: Spans) -> None:
    run(topology(["a"], Relay(), Relay(), Note()), store)

    assert spans.ways() == [
        SPOUT_NAME,
        f"{SPOUT_NAME} > bolt0",
        f"{SPOUT_NAME} > bolt0 > bolt1",
        f"{SPOUT_NAME} > bolt0 > bolt1 > bolt2",
    ]
    assert len(spans.traces()) == 1
    [message] = spans.named(SPOUT_NAME)
    assert (attribute(message, "message_id"), attribute(message, "attempt")) == ("0", 1)
    assert attribute(message, "outcome") == "completed"
    [bolt] = spans.named("bolt2")
    assert attribute(bolt, "roots") == (attribute(message, "root"),)


def test_each_message_has_a_trace_of_its_own(store: Store, spans: Spans) -> None:
    run(topology(range(20), Relay(), Note()), store)
    assert len(spans.traces()) == 20
    assert len(spans.all()) == 60


def test_the_failure_is_marked_where_it_happened_and_on_the_message_and_replays_are_in_the_same_trace(
    store: Store, spans: Spans
) -> None:
    run(topology(["bad"], Relay(), Raises(ValueError("no good"), ["bad"])), store, retries=NO_PAUSE)

    failed = "ValueError: no good"
    above = f"{SPOUT_NAME} > {SPOUT_NAME}"
    assert spans.ways() == sorted(
        [
            f"{SPOUT_NAME}: {failed}",
            f"{SPOUT_NAME} > bolt0",
            f"{SPOUT_NAME} > bolt0 > bolt1: {failed}",
            *[f"{above}: {failed}", f"{above} > bolt0", f"{above} > bolt0 > bolt1: {failed}"] * 2,
        ]
    )
    assert len(spans.traces()) == 1
    messages = spans.named(SPOUT_NAME)
    assert [attribute(one, "attempt") for one in messages] == [1, 2, 3]
    assert [attribute(one, "dead") for one in messages] == [None, None, True]
    assert {(attribute(one, "outcome"), attribute(one, "component")) for one in messages} == {("failed", "bolt1")}
    assert "ValueError" in str(spans.named("bolt1")[0].events[0].attributes)


def test_a_bolt_that_acks_later_has_a_span_until_then_and_a_joined_tuple_links_the_traces(
    store: Store, spans: Spans
) -> None:
    run(topology([1, 2], Pairs(), Note()), store)

    first, second = spans.named("bolt0")
    assert [link.context.trace_id for link in second.links] == [first.context.trace_id]
    [note] = spans.named("bolt1")
    assert note.parent is not None
    assert note.parent.span_id == first.context.span_id


def test_spans_of_libraries_are_below_that_of_the_bolt(store: Store, spans: Spans) -> None:
    def work(collector: OutputCollector, tup: Tuple) -> None:
        with spans.provider.get_tracer("library").start_as_current_span("query"):
            collector.ack(tup)

    run(topology(["a"], Does(work)), store)
    assert f"{SPOUT_NAME} > bolt0 > query" in spans.ways()


@pytest.mark.parametrize("form", ["bytes", "json"])
def test_another_program_continues_the_trace(store: Store, spans: Spans, form: str) -> None:
    sent: list[Any] = []

    def hand_over(collector: OutputCollector, tup: Tuple) -> None:
        anchors = collector.hand_over(tup)
        sent.append(anchors.to_bytes() if form == "bytes" else anchors.to_json())
        collector.ack(tup)
        other_program(sent[0])

    def other_program(header: Any) -> None:
        anchors = Anchors.from_bytes(header) if form == "bytes" else Anchors.from_json(header)
        with pytest.raises(OSError, match="the mail is lost"):
            mail(anchors)
        store.acker.fail(list(anchors), component="mailer", error="lost")

    def mail(anchors: Anchors) -> None:
        with anchors.span("mailer"):
            third = Anchors.traced(anchors, anchors.trace)
            with third.span("postman"):
                pass
            raise OSError("the mail is lost")

    run(topology(["a"], Does(hand_over)), store)
    assert spans.ways() == [
        f"{SPOUT_NAME} > bolt0",
        f"{SPOUT_NAME} > bolt0 > mailer > postman",
        f"{SPOUT_NAME} > bolt0 > mailer: OSError: the mail is lost",
        f"{SPOUT_NAME}: lost",
    ]
    assert len(spans.traces()) == 1


def test_what_is_pending_when_the_runner_stops_has_a_span_that_says_so(store: Store, spans: Spans) -> None:
    taken = threading.Event()

    class Keeps(Bolt):
        def execute(self, tup: Tuple) -> None:
            taken.set()

    with LocalRunner(topology(["a"], Keeps()), store.acker):
        assert taken.wait(30)
    [message] = spans.named(SPOUT_NAME)
    assert attribute(message, "outcome") == "left pending"
    assert is_failed(message)


def test_a_message_that_is_not_sampled_has_no_spans_and_carries_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    note = Note()
    run(topology(["a"], Relay(), note), store)
    assert [(type(tup.anchors), len(tup.anchors.to_bytes())) for tup in note.tuples] == [(Anchors, 16)]


def test_a_sampler_that_raises_does_not_stop_the_work(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Sampler):
        def should_sample(self, *args: Any, **options: Any) -> SamplingResult:
            raise RuntimeError("no sample today")

        def get_description(self) -> str:
            return "broken"

    provider = TracerProvider(sampler=Broken(), shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    runner = run(topology(["a"], Note()), store)
    assert runner.counters()["source"].acked == 1
    assert "the work goes on without it" in caplog.text


def test_a_failed_tuple_is_marked_though_the_bolt_fails_it_itself(store: Store, spans: Spans) -> None:
    def fail(collector: OutputCollector, tup: Tuple) -> None:
        collector.fail(tup, "empty", fatal=True)

    run(topology(["a"], Does(fail)), store)
    [bolt] = spans.named("bolt0")
    assert (bolt.status.description, attribute(bolt, "fatal")) == ("empty", True)
    run(topology(["a"], Raises(FailedTuple("worse"), ["a"])), store)
    assert spans.named("bolt0")[1].status.description == "worse"


WITHOUT = """
import sys

if {is_installed}:
    import opentelemetry.trace  # imported, but no provider is set
else:
    class Nowhere:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "opentelemetry":
                raise ImportError(name)

    sys.meta_path.insert(0, Nowhere())

from redis_acker import Acker, Anchors, BasicBolt, LocalRunner, TopologyBuilder
from redis_acker.spouts.iterable import IterableSpout

seen = []

class Relay(BasicBolt):
    fields = ("value",)
    def process(self, tup, emit):
        seen.append(tup.anchors)
        emit(tup[0])

class Last(BasicBolt):
    def process(self, tup, emit):
        seen.append(tup.anchors)
        seen.append(self.collector.hand_over(Tup(HEADER)))

from redis_acker import Tuple
HEADER = bytes(7) + b"\\x01" + b"\\xff" * 8 + bytes(range(1, 26))
def Tup(header):
    with Anchors.from_bytes(header).span("nobody"):
        return Tuple(["x"], anchors=Anchors.from_bytes(header))

builder = TopologyBuilder("job")
builder.spout("source", IterableSpout(["a"]))
builder.bolt("relay", Relay()).shuffle("source")
builder.bolt("last", Last()).shuffle("relay")
with Acker("{url}", namespace="{namespace}") as acker, LocalRunner(builder.build(), acker) as runner:
    assert runner.wait_until_idle(timeout_s=30)
    assert runner.counters()["source"].acked == 1
print([type(one).__name__ for one in seen], [len(one.to_bytes()) for one in seen], seen[-1].trace == HEADER[16:])
print(any(name.partition(".")[0] == "opentelemetry" for name in sys.modules))
"""


@pytest.mark.parametrize("is_installed", [False, True])
def test_without_opentelemetry_nothing_is_imported_and_a_trace_that_came_is_passed_on(
    store: Store, namespace: str, is_installed: bool
) -> None:
    code = WITHOUT.format(url=store.backend.target, namespace=namespace, is_installed=is_installed)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        "['Anchors', 'Anchors', 'TracedAnchors'] [16, 16, 41] True",
        str(is_installed),
    ], done.stderr
