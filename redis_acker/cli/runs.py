"""`redis-acker runs`: Spark runs in progress, and those that died."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from redis_acker.cli.exits import PROBLEM
from redis_acker.cli.options import Store, store_options
from redis_acker.cli.output import counted
from redis_acker.errors import NotFound, SpoutTaken, UnreadableRun
from redis_acker.views.texts import Cell, duration, moment, shown

if TYPE_CHECKING:
    from redis_acker.store.run_records import PartitionProgress
    from redis_acker.views.runs import RunView

LIMIT = 50
"""Partitions that people are shown unless they ask for more."""

BAR_WIDTH = 40

WORK_COLUMNS = ("spout", "done", "failed", "in work", "partitions", "done/s")
TIME_COLUMNS = ("spout", "driver", "started", "age", "touched", "forgotten in")
PARTITION_COLUMNS = ("pass", "partition", "done", "failed", "in work", "touched", "")

_spout_argument = click.argument("spout", metavar="SPOUT")


@click.group()
def runs() -> None:
    """List, show and drop runs of Spark jobs.

    The tasks of a tracked job note in the store how far they have come. If the
    job dies, the next run under the same spout name continues from there, or
    starts from the beginning if the job had a shuffle (docs/spark.md). A run is
    listed until it ends, or until a week after its driver was last seen.

    SPOUT is the name given to track().

    \b
    Examples:
      redis-acker runs list
      redis-acker runs show shop/orders
      redis-acker runs drop shop/orders
    """


@runs.command("list")
@click.option("--spout", metavar="NAME", help="Only this spout.")
@store_options
def list_runs(store: Store, spout: str | None) -> None:
    """List runs in progress and runs that died.

    The driver is alive while it holds the lease of the spout, which ends ten
    seconds after a driver was killed. Messages count as done, failed or not, when
    their task has begun the next portion; those of the current portions are in
    work, and in a job with a shuffle all of them, until it ends. Partitions are
    those that were begun, of all if the total is known. done/s is the average from
    the start to the last touch: workers touch what they work on several times per
    timeout.

    \b
    Examples:
      redis-acker runs list
      redis-acker runs list --json | jq -r 'select(.driver == null).spout'
    """
    unreadable: list[str] = []
    found = _read_all(store, spout, unreadable)
    if store.out.as_json:
        store.out.lines("run", map(_as_json, found))
    elif views := list(found):
        store.out.table(WORK_COLUMNS, map(_work_of, views))
        store.out.line()
        store.out.table(TIME_COLUMNS, map(_times_of, views))
    elif not unreadable:
        store.out.note("No run is under way or unfinished." if spout is None else f"Spout {spout!r} has no run.")
    for text in unreadable:
        click.echo(shown(text), err=True)
    if unreadable:
        raise click.exceptions.Exit(PROBLEM)


@runs.command()
@_spout_argument
@click.option("--all", "everything", is_flag=True, help=f"All partitions, not only the first {LIMIT}.")
@store_options
def show(store: Store, spout: str, everything: bool) -> None:
    """Show one run, with its partitions.

    Pass 0 is over the whole input; the others are replays, over the messages
    that failed. A portion is the part of a partition's rows that a task begins,
    sinks and acks together; until it is done, its messages are in work. The bar
    counts the partitions whose rows are all done.

    \b
    Examples:
      redis-acker runs show shop/orders
      redis-acker runs show shop/orders --json | jq '.partitions[].done'
    """
    view = _read(store, spout)
    if store.out.as_json:
        partitions = [_partition_as_json(one) for one in view.partitions]
        store.out.document("run", {**_as_json(view), "partitions": partitions})
        return
    store.out.fields(_as_fields(view))
    if view.partitions:
        store.out.line()
        shown_ones = islice(view.partitions, None if everything else LIMIT)
        count = store.out.table(PARTITION_COLUMNS, (_partition_as_row(one, view.now_ms) for one in shown_ones))
        if len(view.partitions) > count:
            store.out.note(f"{len(view.partitions) - count:,} more; --all shows them.")
    if view.driver is None and view.can_go_on:
        store.out.note(
            "Its driver is gone. The next run on the same input goes on from here; "
            "after `redis-acker runs drop` it would start from the beginning."
        )
    elif view.driver is None:
        store.out.note(
            "Its driver is gone. The next run starts from the beginning: the job had a shuffle, "
            "or there is no way to know its input again."
        )


@runs.command()
@_spout_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_options
def drop(store: Store, spout: str, yes: bool) -> None:
    """Forget how far a run has come.

    The next run of the job starts from the beginning and works on all messages
    again, even those that are done. Roots that were in progress time out,
    which counts as a failed attempt at their messages. What is in the retry
    book and among the dead letters stays there.

    A run whose driver is alive cannot be dropped: stop the driver first. A
    driver that was killed counts as alive for up to ten seconds.

    \b
    Examples:
      redis-acker runs drop shop/orders
      redis-acker runs drop shop/orders --yes
    """
    try:
        view: RunView | None = _read(store, spout)
    except UnreadableRun:
        view = None  # to drop it is the remedy
    if view and view.driver:
        raise _driven(spout, view.driver)
    done, in_work = (view.done, view.in_work) if view else (None, None)
    roots = "what is" if in_work is None else counted(in_work, "root")
    meaning = (
        f"the next run starts from the beginning{f', and {roots} in progress will time out' if in_work != 0 else ''}."
    )
    if not yes:
        if store.out.as_json:
            raise click.UsageError("--json cannot ask for confirmation: add --yes.")
        known = "this version cannot read it" if done is None else f"{counted(done, 'message')} done"
        click.echo(f"If you drop it, {meaning}", err=True)
        click.confirm(f"Drop the run of spout {shown(spout)} ({known})?", abort=True, err=True)
    _drop(store, spout)
    if store.out.as_json:
        store.out.document("run_dropped", {"spout": spout, "done": done, "in_work": in_work})
    else:
        store.out.line(f"The run of spout {spout} was dropped: {meaning}")


# -- reading and dropping --------------------------------------------------------------------------------------------


def _read_all(store: Store, only: str | None, unreadable: list[str]) -> Iterator[RunView]:
    """The runs that can be read. Adds a sentence about each of the others."""
    from redis_acker.store.progress import spouts_with_runs
    from redis_acker.views.runs import read_run

    for spout in spouts_with_runs(store.acker, only):
        try:
            if view := read_run(store.acker, spout):
                yield view
        except UnreadableRun as error:
            unreadable.append(f"Spout {spout}: {error}")


def _read(store: Store, spout: str) -> RunView:
    from redis_acker.views.runs import read_run

    if view := read_run(store.acker, spout):
        return view
    raise NotFound(f"Spout {spout!r} has no run under way or unfinished: `redis-acker runs list` lists them.")


def _driven(spout: str, holder: str) -> SpoutTaken:
    return SpoutTaken(
        f"The run of spout {spout!r} is under way, driven by {holder}: stop that driver first. If it was killed, wait "
        "ten seconds and try again."
    )


def _drop(store: Store, spout: str) -> None:
    """Holds the lease meanwhile, so that no driver begins to count on what is dropped."""
    from threading import Event

    from redis_acker.store.lease import Lease
    from redis_acker.store.progress import RunProgress

    lease = Lease(store.acker, spout, who="redis-acker runs drop on ")
    try:
        lease.take(wait=False, stop=Event())
    except SpoutTaken as error:
        raise _driven(spout, error.holder) from error
    try:
        RunProgress(store.acker, store.acker.spout_number(spout)).drop()
    finally:
        lease.give_up()


# -- how a run is printed --------------------------------------------------------------------------------------------


def _work_of(view: RunView) -> tuple[Cell, ...]:
    known = f" of {view.about.partitions:,}" if view.about.partitions else ""
    return view.about.spout, view.done, view.failed, view.in_work, f"{view.seen:,}{known}", view.per_second


def _times_of(view: RunView) -> tuple[Cell, ...]:
    return (
        view.about.spout,
        "gone" if view.driver is None else "alive",
        moment(view.about.started_ms),
        duration(view.age_ms),
        _ago(view.touched_ms, view.now_ms),
        duration(view.forgotten_in_ms),
    )


def _as_fields(view: RunView) -> Iterator[tuple[str, Cell]]:
    yield "spout", view.about.spout
    yield "driver", f"gone; {view.about.where} began the run" if view.driver is None else f"alive: {view.driver}"
    yield "started", f"{moment(view.about.started_ms)}, {duration(view.age_ms)} ago"
    yield "done", view.done
    yield "failed", view.failed
    yield "in work", view.in_work
    yield "done/s", view.per_second
    yield "touched", _ago(view.touched_ms, view.now_ms)
    yield "forgotten in", duration(view.forgotten_in_ms)
    if known := view.about.partitions:
        yield "partitions", f"{view.seen:,} begun, {view.ended:,} done, of {known:,}"
        yield "", _bar(view.ended, known)
    else:
        yield "partitions", f"{view.seen:,} begun, {view.ended:,} done; nobody knows how many there are"


def _bar(part: int, whole: int) -> str:
    full = min(part, whole) * BAR_WIDTH // whole
    return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {min(part, whole) * 100 // whole}%"


def _ago(at_ms: int | None, now_ms: int) -> str:
    return "-" if at_ms is None else f"{duration(max(0, now_ms - at_ms))} ago"


def _partition_as_row(one: PartitionProgress, now_ms: int) -> tuple[Cell, ...]:
    state = "done" if one.has_ended else ""
    return (*one.place, one.done, one.failed, one.rows, _ago(one.touched_ms or None, now_ms), state)


def _as_json(view: RunView) -> dict[str, Any]:
    return {
        "spout": view.about.spout,
        "driver": view.driver,
        "began": view.about.where,
        "started_at_ms": view.about.started_ms,
        "age_ms": view.age_ms,
        "done": view.done,
        "failed": view.failed,
        "in_work": view.in_work,
        "partitions_begun": view.seen,
        "partitions_done": view.ended,
        "partitions_known": view.about.partitions or None,
        "per_second": None if view.per_second is None else round(view.per_second, 2),
        "touched_at_ms": view.touched_ms,
        "forgotten_in_ms": view.forgotten_in_ms,
    }


def _partition_as_json(one: PartitionProgress) -> dict[str, Any]:
    return {
        **dict(zip(("pass", "partition"), one.place, strict=True)),
        "done": one.done,
        "failed": one.failed,
        "in_work": one.rows,
        "is_done": one.has_ended,
        "touched_at_ms": one.touched_ms or None,
    }
