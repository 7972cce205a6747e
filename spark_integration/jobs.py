"""Runs the job of a tracked frame, and again for what failed if that is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from redis_acker import Acker
from redis_acker.errors import AckerError
from redis_acker.retries import RetryPolicy
from spark_integration.errors import BadFrame, JobFailed, error_of
from spark_integration.nodes import Frames, Node, SourceNode
from spark_integration.parts import AnySource
from spark_integration.run import Run
from spark_integration.source import Source
from spark_integration.summary import Summary, join_rounds
from spark_integration.tracking import COLUMN, Cause, Tracking, keys_in

Write = Callable[[DataFrame, Tracking], None]


@dataclass(frozen=True)
class Options:
    """How the messages of a frame are tracked; track() describes them."""

    acker: Acker
    retries: RetryPolicy
    replays: int
    max_failures: int | None
    progress: bool | None


def run_job(node: Node, options: Options, write: Write) -> Summary:
    """Runs until every message is completed, or has failed as often as one call may try it."""
    sources = {one: one.source for one in node.source_nodes()}
    _check(sources, options)
    rounds: list[Summary] = []
    while True:
        summary, run = _run_once(node, options, sources, write)
        rounds.append(summary)
        to_replay = [one.root for one in summary.failures if not one.dead]
        if not to_replay or len(rounds) > options.replays:
            return join_rounds(rounds)
        time.sleep(options.retries.pause_ms(len(rounds)) / 1000)
        [only], [part] = sources, run.sources
        assert isinstance(part.source, Source)
        sources = {only: replace(part.source, only=part.keys_of(to_replay))}


def _check(sources: dict[SourceNode, AnySource], options: Options) -> None:
    spouts = [source.spout for source in sources.values()]
    if len(set(spouts)) < len(spouts):
        raise BadFrame(f"Two sources of one job have the same spout, of {spouts}: give each its own.")
    if options.replays and [type(source) for source in sources.values()] != [Source]:
        raise BadFrame(
            f"replays within one call are for jobs of one source of messages, not of {spouts}: leave replays at 0 and "
            "run the job again for what failed."
        )


@contextmanager
def open_run(options: Options, sources: dict[SourceNode, AnySource]) -> Iterator[tuple[Run, Frames]]:
    """A run and its frames. An error of Spark inside of it fails its messages, and is raised as one of ours."""
    run = Run(
        next(iter(sources.values())).frame.sparkSession,
        options.acker,
        list(sources.values()),
        retries=options.retries,
        max_failures=options.max_failures,
        progress=options.progress,
    )
    with run:
        try:
            yield run, Frames(run.tracking, dict(zip(sources, (one.source for one in run.sources), strict=True)))
        except AckerError:
            raise
        except Exception as error:
            run.watch.check()
            raise error_of(error, f"{run.tracked:,} messages") from error


def _run_once(node: Node, options: Options, sources: dict[SourceNode, AnySource], write: Write) -> tuple[Summary, Run]:
    with open_run(options, sources) as (run, frames):
        write(frames.of(node), run.tracking)
        _trace_groups(run, node, frames)
        summary = run.complete()
    run.forget_tables()
    return summary, run


def _trace_groups(run: Run, node: Node, frames: Frames) -> None:
    """Fails the messages behind rows that failed after an aggregation. The work before it is done again, for the
    groups of these rows only; if a group cannot be found again, nothing of the job counts as done."""
    traced: set[int] = set()
    while groups := run.failed_groups(but=traced):  # more than once: groups may be made of groups
        for (step, cause), keys in groups.items():
            traced |= keys
            _trace(run, node, frames, step, cause, keys)


def _trace(run: Run, node: Node, frames: Frames, step: str, cause: Cause, keys: set[int]) -> None:
    found: set[int] = set()
    for one in node.all_nodes():
        if one.grouping:
            below = frames.of(one.parents[0])
            wanted = below.sparkSession.createDataFrame(pa.table({"group": pa.array(sorted(keys), type=pa.int64())}))
            keyed = below.select(F.col(COLUMN), one.grouping.key().alias("group"))
            rows = keyed.join(F.broadcast(wanted), "group").distinct().toArrow()
            found |= set(rows.column("group").to_pylist())
            if rows.num_rows:
                run.fail(step, {cause: [keys_in(rows.column(COLUMN).combine_chunks())]})
    if missing := keys - found:
        raise JobFailed(
            f"Step {step!r} failed for {len(missing):,} rows behind an aggregation, and they are not there when it is "
            "computed again, so nothing of the job counts as done: declare the step that gives other rows each time "
            "with deterministic=False."
        )
