"""A tracer provider for one test, whose spans the test reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Spans:
    """What has ended, in a form that is easily compared."""

    def __init__(self, exporter: InMemorySpanExporter, provider: TracerProvider) -> None:
        self._exporter, self.provider = exporter, provider

    def all(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def traces(self) -> set[int]:
        return {span.context.trace_id for span in self.all()}

    def ways(self) -> list[str]:
        """Each span as the way from the first of its trace, and what went wrong in it."""
        by_id = {span.context.span_id: span for span in self.all()}

        def way(span: ReadableSpan) -> str:
            above = way(by_id[span.parent.span_id]) + " > " if span.parent else ""
            return above + span.name

        return sorted(way(span) + (f": {span.status.description}" if is_failed(span) else "") for span in self.all())


def is_failed(span: ReadableSpan) -> bool:
    return span.status.status_code is trace.StatusCode.ERROR


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(f"redis_acker.{name}")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Turns traces on for one test. A program sets its provider once, and for good."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield Spans(exporter, provider)
    provider.shutdown()


class FileExporter(SpanExporter):
    """Writes the spans of a Python worker to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Any) -> SpanExportResult:
        with self._path.open("a") as file:
            for span in spans:
                parent = span.parent.span_id if span.parent else 0
                ids = (span.context.trace_id, span.context.span_id, parent)
                file.write(json.dumps([span.name, *ids, span.status.description if is_failed(span) else ""]) + "\n")
        return SpanExportResult.SUCCESS
