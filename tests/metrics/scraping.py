"""Reads what an exporter serves, as Prometheus would."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from redis_acker import Acker
from redis_acker.metrics.exporter import StoreCollector


class Scrape:
    """The samples of one scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self.samples = [sample for family in families for sample in family.samples]

    @classmethod
    def of(cls, url: str) -> Scrape:
        with urllib.request.urlopen(url, timeout=30) as reply:
            return cls(text_string_to_metric_families(reply.read().decode()))

    @classmethod
    def direct(cls, acker: Acker) -> Scrape:
        return cls(StoreCollector(acker, fresh_for_s=0).collect())

    def total(self, name: str, **labels: str) -> float:
        """The sum of all series of a metric with these labels; an AssertionError if there is none."""
        found = [
            sample.value
            for sample in self.samples
            if sample.name == f"redis_acker_{name}" and labels.items() <= sample.labels.items()
        ]
        assert found, f"no {name} with {labels}"
        return float(sum(found))

    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}
