"""The job of a tracked frame: the plan it is computed by, and its runs: one, and more for what failed if asked to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from redis_acker.store.message_ids import MessageId
from redis_acker.store.streams import Cause
from spark_integration.errors import BadFrame, JobFailed
from spark_integration.frames.groups import GroupKey
from spark_integration.frames.steps import Step
from spark_integration.runs.failing import Tracking
from spark_integration.runs.inputs import RunInput
from spark_integration.runs.life import RunOptions
from spark_integration.runs.messages import MessageFrame
from spark_integration.runs.run import Input, JobRun, Run
from spark_integration.runs.shuffled import MessagesInRun
from spark_integration.runs.summary import Summary
from spark_integration.runs.traces import RunTrace
from spark_integration.runs.tracking import COLUMN, keys_in

AnyInput = TypeVar("AnyInput", bound=RunInput)

Build = Callable[[Sequence[DataFrame], "Tracking | None"], DataFrame]
Write = Callable[[DataFrame, Tracking], None]


# -- the plan ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlanNode:
    """A step: the frames it works on, and what it makes of them. Without tracking it makes a preview."""

    parents: tuple[PlanNode, ...]
    build: Build
    group_key: GroupKey | None = None
    """Of an aggregation."""
    python: Step | None = None
    """Of a step in Python."""
    is_projection: bool = False
    """Of a native step that may give each row other columns, and no more."""
    condition: Column | str | None = None
    """Of a native step that leaves rows out."""

    def all_nodes(self) -> Iterator[PlanNode]:
        """This node and all below it, each once."""
        seen: set[int] = set()
        stack = [self]
        while stack:
            node = stack.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                stack.extend(node.parents)

    def inputs(self) -> dict[InputNode, Input]:
        """What the frame is computed from, by name."""
        found = [node for node in self.all_nodes() if isinstance(node, InputNode)]
        return {node: node.input for node in sorted(found, key=lambda node: node.input.name)}


@dataclass(frozen=True, eq=False, kw_only=True)
class InputNode(PlanNode):
    """Messages or deliveries."""

    input: Input

    @classmethod
    def of(cls, input: Input) -> InputNode:
        return cls(parents=(), build=lambda parents, tracking: input.with_keys(), input=input)


class Frames:
    """The frames of a plan, each made once, so that one that is used twice stays the same."""

    def __init__(self, tracking: Tracking | None = None, made: dict[PlanNode, DataFrame] | None = None) -> None:
        self._tracking, self._made = tracking, made or {}

    @classmethod
    def of_run(cls, run: Run[AnyInput], inputs: dict[InputNode, Input]) -> Frames:
        made: dict[PlanNode, DataFrame] = {node: one.with_keys() for node, one in zip(inputs, run.inputs, strict=True)}
        return cls(run.tracking, made)

    def with_those_of(self, others: Frames) -> Frames:
        """Frames that begin with what both have made."""
        return Frames(self._tracking, {**self._made, **others._made})

    def of(self, node: PlanNode) -> DataFrame:
        if node not in self._made:
            self._made[node] = node.build([self.of(parent) for parent in node.parents], self._tracking)
        return self._made[node]


# -- its runs ------------------------------------------------------------------------------------------------------


def run_job(node: PlanNode, options: RunOptions, write: Write, *, is_sink_native: bool = False) -> Summary:
    """Runs the job, and again for what failed as often as one call may replay it."""
    inputs = node.inputs()
    has_python = not is_sink_native or any(one.python for one in node.all_nodes())
    _check(list(inputs.values()), options)
    rounds: list[Summary] = []
    while True:
        is_replay = bool(rounds) or bool(options.in_stream and options.in_stream.is_replay)
        run = JobRun(list(inputs.values()), options, is_replay=is_replay, has_python=has_python)
        with run, RunTrace(run.name, [one.name for one in run.inputs], run.inputs) as trace:
            frames = Frames.of_run(run, inputs)
            write(frames.of(node), run.tracking)
            _fail_noted(run, node, frames)
            rounds.append(trace.ended(run.complete()))
        run.free_tables()
        again = _to_replay(run) if len(rounds) <= options.replays else {}
        if not again:
            return _join(rounds)
        time.sleep(options.retries.pause_ms(max(again.values())) / 1000)
        inputs = {node: one.with_only(again) for node, one in inputs.items() if isinstance(one, MessageFrame)}


def _to_replay(run: JobRun) -> dict[MessageId, int]:
    [messages] = run.inputs
    assert isinstance(messages, MessagesInRun)
    return messages.to_replay()


def _check(inputs: list[Input], options: RunOptions) -> None:
    names = [one.name for one in inputs]
    if len(set(names)) < len(names):
        raise BadFrame(f"Two inputs of one job have the same spout, of {names}: give each its own.")
    if options.replays and [type(one) for one in inputs] != [MessageFrame]:
        raise BadFrame(
            f"replays within one call are for jobs with one frame of messages, not for {names}: leave replays at 0 and "
            "run the job again for what failed."
        )


def _join(rounds: Sequence[Summary]) -> Summary:
    """The outcome of a run and of the replays that followed it."""
    first, last = rounds[0], rounds[-1]
    given_up = [failure for one in rounds[:-1] for failure in one.failures if failure.dead]
    return Summary(
        first.spouts,
        first.tracked,
        sum(one.completed for one in rounds),
        sum(one.dead for one in rounds),
        (*given_up, *last.failures),
        sum(one.seconds for one in rounds),
        first.completed_before,
    )


def _fail_noted(run: JobRun, node: PlanNode, frames: Frames) -> None:
    """Fails the messages of rows that failed. For a row after an aggregation the work before it is done again, for its
    group only. If rows are of neither a message nor a group, nothing of the job counts as done."""
    known: set[int] = set()
    while failed := run.noted(without=known):  # more than once: groups may be made of groups
        known |= {key for keys in failed.values() for key in keys.tolist()}
        messages = np.fromiter(run.fail_messages(failed), dtype=np.int64)
        for cause, keys in failed.items():
            if groups := set(keys[~np.isin(keys, messages)].tolist()):
                _note_messages_of(groups, cause, run, node, frames)


def _note_messages_of(groups: set[int], cause: Cause, run: JobRun, node: PlanNode, frames: Frames) -> None:
    found: set[int] = set()
    for one in node.all_nodes():
        if one.group_key:
            below = frames.of(one.parents[0])
            wanted = below.sparkSession.createDataFrame(pa.table({"group": pa.array(sorted(groups), type=pa.int64())}))
            keyed = below.select(F.col(COLUMN), one.group_key.column().alias("group"))
            rows = keyed.join(F.broadcast(wanted), "group").distinct().toArrow()
            found |= set(rows.column("group").to_pylist())
            if rows.num_rows:
                run.note(keys_in(rows.column(COLUMN).combine_chunks()), cause)
    if missing := groups - found:
        raise JobFailed(
            f"Step {cause.component!r} failed for {len(missing):,} rows after an aggregation, and they are missing "
            "when it is computed again, so nothing of the job counts as done: declare the step that gives different "
            "rows each time with deterministic=False."
        )
