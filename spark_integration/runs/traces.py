"""Traces of runs, if the program uses OpenTelemetry: at a cost that does not grow with the number of messages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from redis_acker.components.tracing import context_of, find_tracer, finish_span, start_span
from spark_integration.runs.gathered import GatheredDeliveries
from spark_integration.runs.inputs import RunInput
from spark_integration.runs.summary import FailedMessage, Summary
from spark_integration.runs.tracking import MOST_TRACED, KeyTable, TracedDelivery

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_ERROR_SHOWN = 500


class RunTrace:
    """A context manager, inside which the span of a run is open. Below it is a span for each message that failed. A
    delivery that came with a trace gets a span in that. All for the first MOST_TRACED of them."""

    def __init__(self, run: str, names: Sequence[str], inputs: Sequence[RunInput] = ()) -> None:
        self._run, self._name, self._inputs = run, ", ".join(names), inputs
        self._span: Span | None = None
        self._deliveries: dict[int, Span] = {}
        """By their keys."""
        self._by_root: dict[int, Span] = {}
        self._about: dict[str, Any] = {}
        self._began_ns = time.time_ns()

    def __enter__(self) -> RunTrace:
        tracer = find_tracer()
        if tracer:
            about = {"run": self._run, "spout": self._name}
            self._span = start_span(tracer, f"run {self._name}", b"", about, starts=True)
            self.received(self._traced_deliveries())
        return self

    def received(self, deliveries: Sequence[TracedDelivery]) -> None:
        """Begins the spans of deliveries that came with a trace. They may be known only when the job is done, and have
        been in work since the run began."""
        if not (tracer := find_tracer()):
            return
        for delivery in deliveries:
            about = {"run": self._run}
            if span := start_span(tracer, self._name, delivery.trace, about, start_time=self._began_ns):
                self._deliveries[delivery.key] = span
                self._by_root.update(dict.fromkeys(delivery.roots, span))

    def _traced_deliveries(self) -> list[TracedDelivery]:
        inputs = [one for one in self._inputs if isinstance(one, GatheredDeliveries)]
        return [delivery for one in inputs for delivery in one.traces()][:MOST_TRACED]

    @property
    def context(self) -> bytes:
        """That of the run; empty if it is not traced."""
        return context_of(self._span) if self._span else b""

    def contexts(self, tables: Sequence[KeyTable]) -> dict[int, bytes]:
        """What rows carry on when they are handed over: by the key of a message, the context of its span."""
        found = {key: context_of(span) for key, span in self._deliveries.items()}
        if self._span:
            first = [table.keys[:MOST_TRACED] for table in tables]
            for key in np.concatenate(first).tolist() if first else []:
                if len(found) < MOST_TRACED:
                    found.setdefault(key, context_of(self._span))
        return found

    def ended(self, summary: Summary) -> Summary:
        """Notes what became of the messages."""
        self._about = {"tracked": summary.tracked, "completed": summary.completed, "failed": summary.failed}
        if self._span:
            for failure in summary.failures[:MOST_TRACED]:
                self._mark(failure, context_of(self._span))
        return summary

    def _mark(self, failure: FailedMessage, run: bytes) -> None:
        about = {"component": failure.step, "outcome": failure.reason, "dead": failure.dead}
        if span := self._by_root.get(failure.root):
            finish_span(span, failure.error or failure.reason, about)
        elif tracer := find_tracer():
            which = {"root": f"{failure.root:016x}", "attempt": failure.attempt}
            if failure.message_id is not None:
                which["message_id"] = str(failure.message_id)
            if span := start_span(tracer, failure.spout, run, which):
                finish_span(span, failure.error or failure.reason, about)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        text = f"{type(error).__name__}: {error}"[:_ERROR_SHOWN] if error else ""
        for span in self._deliveries.values():
            if span.is_recording():  # not so if it failed on its own
                finish_span(span, text)
        if self._span:
            finish_span(self._span, text, self._about)
