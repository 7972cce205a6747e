"""What happens now: numbers, rates and pending over time, latency, and the rotating map."""

from __future__ import annotations

import re
import time

from nicegui import ui

from redis_acker.store.stats import LATENCY_BOUNDS_MS, Latency
from redis_acker.ui.elements import Tile, line_chart, panel, text
from redis_acker.ui.poller import NO_LATENCY, Reading
from redis_acker.views.texts import Cell, duration

_RATES = ("init", "completed", "failed", "timeout")


def _at_most(ms: float) -> str:
    """A bound, which is a round number."""
    return f"≤ {re.sub(r'[.]0| 0[sm]$', '', duration(ms))}"


_LATENCIES = [*map(_at_most, LATENCY_BOUNDS_MS), "more"]


class Tiles:
    """The numbers at the top."""

    def __init__(self) -> None:
        with ui.element("div").classes("tiles"):
            self._tiles = {
                name: Tile(name)
                for name in (
                    *("pending", "init/s", "completed/s", "failed/s", "timeout/s"),
                    *("oldest at most", "latency p50", "latency p99", "retries", "dead letters"),
                )
            }

    def show(self, reading: Reading) -> None:
        view = reading.view
        if view is None:
            return
        speed = reading.points[-1].speed
        p50, p99 = (reading.latency.at_most_ms(share) for share in (0.5, 0.99))
        oldest_ms = max(one.oldest_at_most_ms for one in view.shards)
        values: dict[str, Cell] = {
            "pending": view.pending,
            "init/s": f"{speed.initialised:,.0f}",
            "completed/s": f"{speed.completed:,.0f}",
            "failed/s": f"{speed.failed:,.0f}",
            "timeout/s": f"{speed.timeout:,.0f}",
            "oldest at most": duration(oldest_ms) if oldest_ms else None,
            "latency p50": None if p50 is None else _at_most(p50),
            "latency p99": None if p99 is None else _at_most(p99),
            "retries": sum(one.retries for one in view.spouts),
            "dead letters": sum(one.dead for one in view.spouts),
        }
        for name, value in values.items():
            self._tiles[name].show(value)


class Charts:
    """Rates, pending and latency."""

    def __init__(self) -> None:
        with ui.element("div").classes("wide"):
            with panel("Roots per second"):
                self._rates = line_chart("Roots per second over the last five minutes", _RATES)
            with panel("Pending"):
                self._pending = line_chart("Pending roots over the last five minutes", ["pending"])
            with panel("Completion latency, last minute"):
                self._latency = ui.echart(_latency_options()).classes("chart")
                self._latency.props("role=img").props["aria-label"] = _latency_text(NO_LATENCY)

    def show(self, reading: Reading) -> None:
        points = reading.points
        for at, pick in enumerate(("initialised", "completed", "failed", "timeout")):
            values = [[1000 * one.at_s, round(getattr(one.speed, pick), 1)] for one in points]
            self._rates.options["series"][at]["data"] = values
        self._pending.options["series"][0]["data"] = [[1000 * one.at_s, one.pending] for one in points]
        self._latency.options["series"][0]["data"] = list(reading.latency.counts)
        self._latency.props["aria-label"] = _latency_text(reading.latency)
        for chart in (self._rates, self._pending, self._latency):
            chart.update()


def _latency_text(latency: Latency) -> str:
    """What the chart shows, for those who do not see it."""
    said = [f"{count:,} {label}" for label, count in zip(_LATENCIES, latency.counts, strict=True) if count]
    return f"Completions of the last minute by latency: {', '.join(said) or 'none'}"


def _latency_options() -> dict[str, object]:
    return {
        "animation": False,
        "color": ["#3a9d5d"],
        "textStyle": {"color": "#7d8794"},
        "grid": {"left": 8, "right": 12, "top": 14, "bottom": 4, "containLabel": True},
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "xAxis": {
            "type": "category",
            "data": _LATENCIES,
            "axisLabel": {"color": "#7d8794", "rotate": 50, "fontSize": 10},
        },
        "yAxis": {
            "type": "value",
            "minInterval": 1,
            "axisLabel": {"color": "#7d8794"},
            "splitLine": {"lineStyle": {"color": "rgba(127,127,127,.2)"}},
        },
        "series": [{"name": "roots", "type": "bar", "data": []}],
    }


class RotatingMap:
    """The buckets of all shards together, from the nursery to death row, and the time to the next rotation."""

    def __init__(self) -> None:
        with panel("The rotating map", note="Blocks of roots by age. A rotation moves every bucket one step on."):
            self._map = ui.element("div").classes("map").props('role=list aria-label="Buckets"')
            self._due = text("p").classes("muted").style("margin: 10px 0 4px")
            self._bar = ui.linear_progress(value=0.0, show_value=False, size="8px")
            self._bar.props('aria-label="Time until the next rotation" instant-feedback')
        self._parts: list[tuple[ui.element, ui.element]] = []

    def show(self, reading: Reading) -> None:
        view = reading.view
        if view is None:
            return
        sizes = [sum(column) for column in zip(*(one.blocks for one in view.shards), strict=True)]
        if len(self._parts) != len(sizes):
            self._build(len(sizes))
        most = max(*sizes, 1)
        for (count, fill), size in zip(self._parts, sizes, strict=True):
            count.set_text(f"{size:,}")  # type: ignore[attr-defined]
            fill.style(f"height: {round(100 * size / most)}%")
        if reading.away:  # what it was has run out by now, and would look like a rotator that is gone
            self._due.set_text("When the next rotation is due is not known while the store is away.")
            self._bar.set_value(0.0)
            return
        # Runs down between two readings too.
        due_ms = min(one.due_in_ms for one in view.shards) - 1000 * (time.time() - reading.read_s)
        late = f"overdue by {duration(-due_ms)}: is a rotator running?" if due_ms < -1000 else "due now"
        self._due.set_text(f"The next rotation is {f'due in {duration(due_ms)}' if due_ms > 0 else late}")
        self._bar.set_value(round(max(0.0, min(1.0, due_ms / view.settings.tick_ms)), 3))

    def _build(self, places: int) -> None:
        self._map.clear()
        self._parts = []
        with self._map:
            for bucket in range(places):
                last, expired = bucket == places - 2, bucket == places - 1
                kind = " is-expired" if expired else " is-last" if last else ""
                name = (
                    "expired" if expired else "death row" if last else "nursery" if bucket == 0 else f"bucket {bucket}"
                )
                steps = "not rotated yet" if bucket == 0 else f"{bucket} rotation{'s' if bucket > 1 else ''} old"
                with ui.element("div").classes(f"bucket{kind}").props("role=listitem"):
                    text("strong", name)
                    with ui.element("div").classes("bar"):
                        fill = ui.element("div").classes("fill")
                    count = text("span", "0").classes("count").props(f'data-bucket="{bucket}"')
                    text("span", "waits for the drain" if expired else steps).classes("muted")
                self._parts.append((count, fill))
