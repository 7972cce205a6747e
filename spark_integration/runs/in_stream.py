"""What a run is told when it is one of many of a stream: the stream holds the spout, and counts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from redis_acker.store.message_ids import MessageId
from redis_acker.store.progress import RunProgress
from spark_integration.runs.arrivals import Arrivals
from spark_integration.runs.spout import RunSpout
from spark_integration.runs.tally import Tally

Spans = list[tuple[int, int]]
"""First block sequence and rows of roots that follow each other."""


class WrittenNote(Protocol):
    """Where the run of a job with a shuffle notes that it is written, before it acks: then nothing does it again."""

    def note(self, token: str, lives: list[str], spans: Spans, failed: list[int]) -> None:
        """Notes what is to be acked, under which token, how the servers were named when the run began, and the roots
        that have failed."""

    def forget(self) -> None:
        """It has to be done again."""


@dataclass(frozen=True)
class RunInStream:
    """The place of a run in its stream, which holds the spout over many runs and drops their progress."""

    spout: RunSpout
    tally: Tally
    progress: RunProgress
    input: str
    """Names the input of the run: a run that died is continued if it had the same."""
    pace: str
    """Under which workers remember how long a row takes."""
    rows: str = ""
    """Under which name workers keep the rows of messages that fail; empty: they are kept already."""
    waiting: Callable[[], Collection[MessageId]] = tuple
    """Messages that wait for another attempt when a run begins. A row with such an id is set aside by workers that keep
    rows."""
    tells_ids: bool = False
    """Whether completions say which messages they are of."""
    arrivals: Arrivals | None = None
    """Counts how long messages take, if the stream knows when they have arrived."""
    is_replay: bool = False
    """All messages have failed before."""
    written: WrittenNote | None = None
