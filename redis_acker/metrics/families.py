"""An overview as families of metrics. Labels are bounded, and never hold a message id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric
except ImportError:
    raise ImportError("Metrics need prometheus_client: run `pip install 'redis-acker[metrics]'`.") from None

from redis_acker.store.stats import LATENCY_BOUNDS_MS, Latency
from redis_acker.views.overview import Overview, ShardView, SpoutView
from redis_acker.views.servers import ServerView

MOST_NAMES = 100
"""Spouts, and components, that get series of their own; what comes after them is counted as OTHER."""

OTHER = "other"

SCRIPT_BOUNDS_US = (16, 33, 66, 132, 264, 528, 1_056, 2_113, 4_227, 8_454, 16_908, 33_816, 67_633, 135_266, 1_082_130)
"""Among the bounds of the servers' own histograms."""

_SPOUT_COUNTERS: dict[str, tuple[str, Callable[[SpoutView], int | None]]] = {
    "initialised": ("Roots made pending.", lambda one: one.stats.initialised),
    "completed": ("Roots that completed.", lambda one: one.stats.completed),
    "replayed": ("Roots made pending for an attempt that was not the first.", lambda one: one.stats.replayed),
    "buried": ("Dead letters written.", lambda one: one.stats.buried),
    "micro_batches": (
        "Micro-batches that the tracked stream of the spout has finished; absent if it has none.",
        lambda one: one.micro_batches,
    ),
}
_SPOUT_GAUGES: dict[str, tuple[str, Callable[[SpoutView], int | None]]] = {
    "pending": ("Roots without a final event.", lambda one: one.stats.pending),
    "retries": ("Messages that have failed, and are neither complete nor dead.", lambda one: one.retries),
    "dead_letters": ("Dead letters that are kept.", lambda one: one.dead),
    "paused": ("1 if the spout is paused.", lambda one: int(one.paused_ms is not None)),
    "lag": ("Messages that wait in the source of the spout; absent if its driver cannot tell.", lambda one: one.lag),
}
_SHARD_COUNTERS: dict[str, tuple[str, Callable[[ShardView], float]]] = {
    "acked": ("Ack vals applied, folded per root.", lambda one: one.stats.acked),
    "late": ("Acks and fails for roots that were finished.", lambda one: one.stats.late),
    "duplicates": ("Ack vals and inits recognised as second deliveries.", lambda one: one.stats.duplicates),
    "orphans": ("Records that expired because their init never came.", lambda one: one.stats.orphans),
    "early_refused": (
        "Calls refused: too much is kept for roots without an init.",
        lambda one: one.stats.early_refused,
    ),
    "set_aside": ("Records that could not be read and were set aside.", lambda one: one.stats.set_aside),
    "rotations": ("Steps by which the buckets aged.", lambda one: one.stats.tick),
    "rotation_waits": ("Rotations that had to wait for a drain.", lambda one: one.stats.waits),
    "rotation_late_seconds": ("How late the rotations were, all together.", lambda one: one.stats.late_ms / 1000),
}
_SHARD_GAUGES: dict[str, tuple[str, Callable[[ShardView], float]]] = {
    "shard_pending": ("Roots of the shard without a final event.", lambda one: one.stats.pending),
    "early_bytes": ("Kept for roots without an init.", lambda one: one.stats.early_bytes),
    "quarantined": ("Records in quarantine.", lambda one: one.quarantined),
    "oldest_seconds": ("A bound for the age of the oldest pending root.", lambda one: one.oldest_at_most_ms / 1000),
    "rotation_overdue_seconds": ("How late the next rotation is by now.", lambda one: max(0, -one.due_in_ms) / 1000),
}
_SERVER_GAUGES: dict[str, tuple[str, Callable[[ServerView], float | None]]] = {
    "server_up": ("Whether the server answered.", lambda one: float(one.error is None)),
    "server_memory_bytes": ("Memory that the server uses.", lambda one: one.used_memory),
    "server_memory_limit_bytes": ("maxmemory; absent without a limit.", lambda one: one.max_memory),
    "server_latency_seconds": (
        "The fastest of a few pings.",
        lambda one: None if one.latency_ms is None else one.latency_ms / 1000,
    ),
}


class FirstNames:
    """Bounds a label: the names that came first keep theirs for the life of the process."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name


@dataclass(frozen=True)
class Labels:
    """The names that have series of their own, remembered from one scrape to the next."""

    spouts: FirstNames
    components: FirstNames

    @classmethod
    def new(cls) -> Labels:
        return cls(FirstNames(), FirstNames())


def families(view: Overview, labels: Labels) -> Iterator[Metric]:
    """Everything that an overview says."""
    yield from _settings(view)
    yield from _spouts(view, labels.spouts)
    yield from _shards(view)
    yield _components(view, labels.components)
    yield from _servers(view)


def up(namespace: str, is_up: bool) -> Metric:
    found = GaugeMetricFamily("redis_acker_up", "Whether the namespace could be read.", labels=["namespace"])
    found.add_metric([namespace], float(is_up))
    return found


def _settings(view: Overview) -> Iterator[Metric]:
    for name, text, value_ms in (
        ("timeout_seconds", "The timeout of roots.", view.settings.timeout_ms),
        ("tick_seconds", "The time between two rotations.", view.settings.tick_ms),
    ):
        found = GaugeMetricFamily(f"redis_acker_{name}", text, labels=["namespace"])
        found.add_metric([view.namespace], value_ms / 1000)
        yield found


def _spouts(view: Overview, names: FirstNames) -> Iterator[Metric]:
    groups: dict[str, list[SpoutView]] = {}
    for one in view.spouts:
        groups.setdefault(names.label(one.name), []).append(one)
    for kind, table in ((CounterMetricFamily, _SPOUT_COUNTERS), (GaugeMetricFamily, _SPOUT_GAUGES)):
        for name, (text, value_of) in table.items():
            found = kind(f"redis_acker_{name}", text, labels=["namespace", "spout"])
            for spout, views in groups.items():
                if known := [value for one in views if (value := value_of(one)) is not None]:
                    found.add_metric([view.namespace, spout], sum(known))
            yield found
    yield _failed(view.namespace, groups)
    yield _unread(view.namespace, groups)
    yield _leases(view.namespace, groups)
    yield _latencies(view.namespace, groups)


def _failed(namespace: str, groups: dict[str, list[SpoutView]]) -> Metric:
    found = CounterMetricFamily(
        "redis_acker_failed", "Roots that failed, by reason.", labels=["namespace", "spout", "reason"]
    )
    for spout, views in groups.items():
        found.add_metric([namespace, spout, "failed"], sum(one.stats.failed for one in views))
        found.add_metric([namespace, spout, "timeout"], sum(one.stats.timeout for one in views))
    return found


def _unread(namespace: str, groups: dict[str, list[SpoutView]]) -> Metric:
    text = "Entries of the streams of final events that no reader has released."
    found = GaugeMetricFamily("redis_acker_unread", text, labels=["namespace", "spout", "stream"])
    for spout, views in groups.items():
        found.add_metric([namespace, spout, "completions"], sum(one.unread_completions for one in views))
        found.add_metric([namespace, spout, "failures"], sum(one.unread_failures for one in views))
    return found


def _leases(namespace: str, groups: dict[str, list[SpoutView]]) -> Metric:
    text = "Time until the lease of the spout's driver ends unless it is renewed; 0 if nobody drives it."
    found = GaugeMetricFamily("redis_acker_lease_seconds", text, labels=["namespace", "spout"])
    for spout, views in groups.items():
        found.add_metric([namespace, spout], min(one.lease_ms for one in views) / 1000)
    return found


def _latencies(namespace: str, groups: dict[str, list[SpoutView]]) -> Metric:
    text = "Time from the init of a root to its completion."
    found = HistogramMetricFamily("redis_acker_completion_seconds", text, labels=["namespace", "spout"])
    for spout, views in groups.items():
        counts = [sum(column) for column in zip(*(one.latency.counts for one in views), strict=True)]
        total = Latency(tuple(counts), sum(one.latency.sum_ms for one in views))
        below = 0
        buckets: list[tuple[str, float]] = []
        for bound_ms, count in zip(LATENCY_BOUNDS_MS, total.counts, strict=False):
            below += count
            buckets.append((str(bound_ms / 1000), below))
        buckets.append(("+Inf", total.count))
        found.add_metric([namespace, spout], buckets, sum_value=total.sum_ms / 1000)
    return found


def _shards(view: Overview) -> Iterator[Metric]:
    for kind, table in ((CounterMetricFamily, _SHARD_COUNTERS), (GaugeMetricFamily, _SHARD_GAUGES)):
        for name, (text, value_of) in table.items():
            found = kind(f"redis_acker_{name}", text, labels=["namespace", "shard"])
            for one in view.shards:
                found.add_metric([view.namespace, str(one.shard)], value_of(one))
            yield found
    blocks = GaugeMetricFamily(
        "redis_acker_blocks", "Blocks in each bucket; 0 is the nursery.", labels=["namespace", "shard", "bucket"]
    )
    for one in view.shards:
        for bucket, amount in enumerate(one.blocks):
            place = "expired" if bucket == len(one.blocks) - 1 else str(bucket)
            blocks.add_metric([view.namespace, str(one.shard), place], amount)
    yield blocks


def _components(view: Overview, names: FirstNames) -> Metric:
    found = CounterMetricFamily(
        "redis_acker_component_failed", "Roots that a component failed.", labels=["namespace", "component"]
    )
    totals: dict[str, int] = {}
    for component, count in sorted(view.components.items(), key=lambda pair: pair[0] or ""):
        label = OTHER if component is None else names.label(component)
        totals[label] = totals.get(label, 0) + count
    for label, count in totals.items():
        found.add_metric([view.namespace, label], count)
    return found


def _servers(view: Overview) -> Iterator[Metric]:
    for name, (text, value_of) in _SERVER_GAUGES.items():
        found = GaugeMetricFamily(f"redis_acker_{name}", text, labels=["namespace", "server"])
        for one in view.servers:
            if (value := value_of(one)) is not None:
                found.add_metric([view.namespace, one.address], value)
        yield found
    scripts = HistogramMetricFamily(
        "redis_acker_server_script_seconds",
        "Time of a script call on the server, of all programs that use it.",
        labels=["namespace", "server"],
    )
    for one in view.servers:
        if one.script_times:
            scripts.add_metric([view.namespace, one.address], list(_script_buckets(one.script_times)), sum_value=None)
    yield scripts


def _script_buckets(times: dict[int, int]) -> Iterable[tuple[str, float]]:
    """The server names only bounds that were met; Prometheus wants the same ones every time."""
    for bound_us in SCRIPT_BOUNDS_US:
        yield str(bound_us / 1e6), max((count for met_us, count in times.items() if met_us <= bound_us), default=0)
    yield "+Inf", max(times.values())
