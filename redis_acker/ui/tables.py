"""Spouts, shards, servers, Spark runs and failures, as tables."""

from __future__ import annotations

from redis_acker.ui.desk import Desk
from redis_acker.ui.elements import Grid, panel, text
from redis_acker.ui.pauses import Pauses
from redis_acker.ui.poller import Reading
from redis_acker.views.overview import Overview, SpoutView
from redis_acker.views.runs import RunView
from redis_acker.views.texts import Cell, byte_size, duration, moment

MOST_ROWS = 100
"""Rows that a page is sent: of thousands of spouts, the busiest."""

MOST_NAMES = 3
"""Spouts that are named beside a failure."""


class Tables:
    """Everything that is a list."""

    def __init__(self, desk: Desk) -> None:
        with panel("Spouts"):
            self._spouts = Grid(
                [
                    ("spout", False),
                    ("lag", True),
                    *((name, True) for name in ("pending", "init", "completed", "failed", "timeout", "replayed")),
                    *((name, True) for name in ("retries", "dead", "unread")),
                    ("driver", False),
                ],
            )
            self._more = text("p").classes("muted")
            self._pauses = Pauses(desk) if desk.rights.allows_actions else None
        with panel("Failures by component and error", note="Of messages that are not complete by now."):
            columns = ("component", False), ("error", False), ("roots", True), ("last", True)
            self._failures = Grid([*columns, ("spouts", False), ("reason", False)])
            self._no_failures = text("p").classes("muted")
        with panel("Shards"):
            names = ("shard", "pending", "due in", "waits", "late", "duplicates", "orphans")
            self._shards = Grid([*((name, True) for name in names), ("server", True)])
        with panel("Servers"):
            self._servers = Grid(
                [("server", False), ("version", False), ("memory", True), ("of", True), ("ping", True)],
            )
        with panel("Spark runs and streams"):
            numbers = ((name, True) for name in ("done", "failed", "in work"))
            self._runs = Grid([("spout", False), *numbers, ("progress", False), ("driver", False)])
            self._no_runs = text("p").classes("muted")

    def show(self, reading: Reading) -> None:
        view = reading.view
        if view is None:
            return
        self._show_spouts(view)
        self._shards.show(
            [
                (
                    *(str(one.shard), one.stats.pending, duration(one.due_in_ms), one.stats.waits),
                    *(one.stats.late, one.stats.duplicates, one.stats.orphans, one.server),
                )
                for one in sorted(view.shards, key=lambda one: -one.stats.pending)[:MOST_ROWS]
            ]
        )
        self._servers.show(
            [
                (
                    *(one.address, one.version or one.error, byte_size(one.used_memory)),
                    byte_size(one.max_memory) if one.max_memory else "no limit" if one.info else None,
                    None if one.latency_ms is None else f"{one.latency_ms:.1f} ms",
                )
                for one in view.servers
            ]
        )
        self._failures.show(
            [
                (
                    *(one.component or None, one.error or one.reason, one.count, moment(one.last_ms)),
                    *(_few(one.spouts), one.reason),
                )
                for one in reading.failures[:MOST_ROWS]
            ]
        )
        self._no_failures.set_text("" if reading.failures else "None.")
        runs = _runs(view, reading.runs)
        self._runs.show(runs[:MOST_ROWS])
        self._no_runs.set_text("" if runs else "None in progress.")

    def _show_spouts(self, view: Overview) -> None:
        busiest = sorted(view.spouts, key=lambda one: (-one.stats.pending, one.name))[:MOST_ROWS]
        if self._pauses:
            self._pauses.show(view)
        self._spouts.show(
            [
                (
                    *(f"{one.name} (paused)" if one.paused_ms is not None else one.name, one.lag),
                    *(one.stats.pending, one.stats.initialised, one.stats.completed, one.stats.failed),
                    *(one.stats.timeout, one.stats.replayed, one.retries, one.dead),
                    *(one.unread_completions + one.unread_failures, one.driver),
                )
                for one in busiest
            ]
        )
        count = len(view.spouts)
        self._more.set_text(f"The {MOST_ROWS} busiest of {count:,}." if count > MOST_ROWS else "")


def _few(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _runs(view: Overview, booked: tuple[RunView, ...]) -> list[tuple[Cell, ...]]:
    """Runs in progress, and tracked streams, those that are alive first."""
    found = [_run_of(one) for one in view.spouts if one.run_roots is not None]
    runs = {one.about.spout: one for one in booked}
    streams = [(one, runs.pop(one.name, None)) for one in view.spouts if one.micro_batches is not None]
    found += map(_booked_run, runs.values())
    return found + [_stream(*one) for one in sorted(streams, key=lambda one: one[0].driver is None)]


def _run_of(spout: SpoutView) -> tuple[Cell, ...]:
    """Of a run whose driver keeps the books. It holds the lease of its spout, so all that is pending there is its."""
    roots, pending = spout.run_roots or 0, spout.stats.pending
    done = max(0, roots - pending)
    return spout.name, done, None, pending, f"{100 * done // max(roots, 1)}% of {roots:,}", _driver(spout.driver)


def _booked_run(run: RunView) -> tuple[Cell, ...]:
    """Of a run whose tasks keep the books: how many messages there are is not known before the end."""
    partitions = f"{run.ended:,} of {run.about.partitions or run.seen:,} partitions"
    return run.about.spout, run.done, run.failed, run.in_work, partitions, _driver(run.driver)


def _stream(spout: SpoutView, run: RunView | None) -> tuple[Cell, ...]:
    """Of a tracked stream, with the run of the micro-batch in work."""
    finished = f"{spout.micro_batches:,} micro-batch{'' if spout.micro_batches == 1 else 'es'} finished"
    if run is None:
        return spout.name, None, None, None, finished, _driver(spout.driver)
    *cells, partitions, driver = _booked_run(run)
    return *cells, f"{finished}, next: {partitions}", driver


def _driver(holder: str | None) -> str:
    return "gone" if holder is None else "alive"
