"""Traces: the spans of OpenTelemetry in which a message is worked on, and the context of them that anchors carry.

Nothing here imports OpenTelemetry. A program that wants traces has done so, and has set a tracer provider; without one
there is nobody to tell.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from redis_acker.store.packed import TRACE_BYTES

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer

    from redis_acker.components.tuples import Anchors, Tuple
    from redis_acker.store.message_ids import MessageId

SCOPE = "redis_acker"
"""The name under which OpenTelemetry knows who makes these spans."""

FLUSH_S = 1.0
"""How long flush_spans() waits for the exporter."""

_TRACE_ID, _SPAN_ID = slice(0, 16), slice(16, 24)
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

log = logging.getLogger(__name__)


def find_tracer() -> Tracer | None:
    """That of the program's OpenTelemetry; None if it has not set it up."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None or not hasattr(api, "get_tracer_provider"):  # in the middle of its import
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
        return None
    tracer: Tracer = provider.get_tracer(SCOPE)
    return tracer


def flush_spans() -> None:
    """Exports what has ended, in a process that may not live until the exporter's next turn."""
    if find_tracer():
        flush = getattr(sys.modules["opentelemetry.trace"].get_tracer_provider(), "force_flush", None)
        if flush:
            thread = threading.Thread(target=flush, name="flush spans", daemon=True)
            thread.start()
            thread.join(FLUSH_S)


# -- the context of a span, as anchors carry it ----------------------------------------------------------------------


def context_of(span: Span) -> bytes:
    context = span.get_span_context()
    return context.trace_id.to_bytes(16, "big") + context.span_id.to_bytes(8, "big") + bytes([context.trace_flags])


def to_traceparent(trace: bytes) -> str:
    """The value of W3C's header of that name."""
    return f"00-{trace[_TRACE_ID].hex()}-{trace[_SPAN_ID].hex()}-{trace[-1]:02x}"


def from_traceparent(text: Any) -> bytes:
    found = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise ValueError("its traceparent is not one of W3C's version 00")
    return bytes.fromhex("".join(found.groups()))


def span_context(trace: bytes) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    assert len(trace) == TRACE_BYTES
    trace_id, span_id = int.from_bytes(trace[_TRACE_ID], "big"), int.from_bytes(trace[_SPAN_ID], "big")
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(trace[-1]))


# -- spans -----------------------------------------------------------------------------------------------------------


def start_span(
    tracer: Tracer, name: str, parent: bytes, attributes: Mapping[str, Any], *, starts: bool = False, **options: Any
) -> Span | None:
    """A span below another, or the first of its trace; None if it is not sampled. starts: messages come from it."""
    from opentelemetry.trace import NonRecordingSpan, SpanKind, set_span_in_context

    try:
        span = tracer.start_span(
            name,
            set_span_in_context(NonRecordingSpan(span_context(parent))) if parent else None,
            kind=SpanKind.PRODUCER if starts else SpanKind.CONSUMER,
            attributes={f"{SCOPE}.{key}": value for key, value in attributes.items() if value != ""},
            **options,
        )
        return span if span.is_recording() else None
    except Exception:  # of a sampler or a processor: work does not depend on them
        log.exception("OpenTelemetry could not start a span; the work goes on without it.")
        return None


def finish_span(span: Span, error: str = "", attributes: Mapping[str, Any] | None = None, **options: Any) -> None:
    """Ends a span. An error marks it as failed."""
    from opentelemetry.trace import Status, StatusCode

    try:
        for key, value in (attributes or {}).items():
            if value != "":
                span.set_attribute(f"{SCOPE}.{key}", value)
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(**options)
    except Exception:
        log.exception("OpenTelemetry could not end a span; the work goes on.")


# -- of a message ----------------------------------------------------------------------------------------------------


class MessageTrace:
    """The trace of a message: a span for each attempt, from its emit to its final event. Those of replays are below the
    first."""

    __slots__ = ("_first", "_parent", "_span")

    def __init__(self, parent: bytes = b"") -> None:
        """parent: the context with which another program handed the message over."""
        self._parent, self._first = parent, b""
        self._span: Span | None = None

    def begin(self, tracer: Tracer, spout: str, message_id: MessageId, root: int, attempt: int) -> bytes:
        """Begins an attempt. Returns the context for its tuples, nothing if it is not sampled."""
        about = {"spout": spout, "message_id": str(message_id), "root": f"{root:016x}", "attempt": attempt}
        self._span = start_span(tracer, spout, self._first or self._parent, about, starts=True)
        if self._span is None:
            return b""
        context = context_of(self._span)
        self._first = self._first or context
        return context

    def end(self, outcome: str, component: str = "", error: str = "", *, is_dead: bool = False) -> None:
        """outcome: completed, or the reason of the failure."""
        span, self._span = self._span, None
        if span:
            is_failure = outcome != "completed"
            about = {"outcome": outcome, "component": component, **({"dead": True} if is_dead else {})}
            finish_span(span, (error or outcome) if is_failure else "", about)


# -- of a tuple, or a delivery to another program --------------------------------------------------------------------


def call_in_span(work: Callable[[Tuple], None], tup: Tuple, component: str, *, nests: bool) -> None:
    """Calls a bolt in a span that ends when the tuple is acked or failed. nests: its children belong to that span."""
    with SpanInWork(tup.anchors, component, nests=nests, ends=False):
        work(tup)


def begin_span(anchors: Anchors, name: str) -> Span | None:
    """Begins the span in which anchors are worked on. None if their message is not traced."""
    tracer = find_tracer() if anchors.trace else None
    if not tracer:
        return None
    span = start_span(tracer, name, anchors.trace, {"roots": [f"{root:016x}" for root in anchors]})
    if span:
        anchors.open_span = span  # type: ignore[attr-defined]
    return span


def end_span(anchors: Anchors, error: str = "", *, fatal: bool = False) -> None:
    """Ends the span in which anchors are worked on, if it has begun."""
    span, anchors.open_span = anchors.open_span, None  # type: ignore[attr-defined]
    if span:
        finish_span(span, error, {"fatal": True} if fatal else None)


def link_spans(parents: Sequence[Anchors]) -> bytes:
    """The context for a tuple with several parents: that of the first. The spans of the others are linked to it."""
    first = parents[0].trace
    for other in parents[1:]:
        span = other.open_span  # type: ignore[attr-defined]
        if span and other.trace[_TRACE_ID] != first[_TRACE_ID]:
            span.add_link(span_context(first))
    return first


class SpanInWork:
    """A context manager. Inside it the span of what has some anchors is open and current, so that spans of libraries
    are below it."""

    def __init__(self, anchors: Anchors, name: str, *, nests: bool = True, ends: bool = True) -> None:
        """nests: what is emitted inside belongs to the span. ends: the span ends with the block."""
        self._anchors, self._name, self._nests, self._ends = anchors, name, nests, ends
        self._scope: Any = nullcontext()

    def __enter__(self) -> None:
        anchors: Any = self._anchors
        self._around = (anchors.trace, anchors.open_span) if anchors.trace else None
        if span := begin_span(anchors, self._name):
            from opentelemetry.trace import use_span

            if self._nests:
                anchors.trace = context_of(span)
            self._scope = use_span(span, end_on_exit=False, record_exception=True, set_status_on_exception=False)
        else:
            self._around = None
        self._scope.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        try:
            self._scope.__exit__(kind, error, traceback)
        finally:
            if self._ends and self._around:
                end_span(self._anchors, f"{type(error).__name__}: {error}" if error else "")
                self._anchors.trace, self._anchors.open_span = self._around  # type: ignore[attr-defined]
