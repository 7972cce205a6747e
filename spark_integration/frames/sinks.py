"""Sinks as they run in Spark's workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_integration.errors import SinkHangs
from spark_integration.frames.rows import Rows
from spark_integration.frames.steps import RAISED, FailedRows

Per = Literal["row", "batch", "partition"]

ROWS_AT_ONCE = 10_000
"""Most rows that a sink is given in one batch."""

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Sink:
    """Hands rows to a function: one at a time, or as Arrow batches. If it raises, the messages behind what it was given
    fail, and the next follows. PartitionSink does it for whole partitions."""

    name: str
    function: Callable[[Any], object]
    per: Per = "batch"
    concurrency: int = 1
    """Calls that run at once."""
    timeout_s: float = 600.0
    """A call that takes longer hangs."""
    anchors: str | None = None
    """The column in which rows have their anchors, if they leave for another application."""

    @property
    def takes_rows(self) -> bool:
        return self.per == "row"

    def write(self, rows: Rows, failed: FailedRows) -> None:
        """Returns when the function has returned for all rows, or raised: these are added to failed."""
        if not len(rows):
            return
        given: Sequence[Any]
        if self.takes_rows:
            given, size = list(rows.as_rows()), 1
        else:
            batch, size = rows.as_batch(), ROWS_AT_ONCE
            given = [batch.slice(start, size) for start in range(0, len(rows), size)]
        for i, error in _Calls(self, given).run():
            for place in dict.fromkeys(rows.places[i * size : (i + 1) * size].tolist()):
                failed.add(self.name, place, error)


class _Calls:
    """Calls a sink's function for each of some things, a few at once. They run in threads of their own, so that one
    that hangs does not keep the task from ending."""

    def __init__(self, sink: Sink, given: Sequence[Any]) -> None:
        self._sink, self._given = sink, given
        self._next = iter(range(len(given)))
        self._began_s: list[float | None] = [None] * min(sink.concurrency, len(given))
        self._errors: list[tuple[int, BaseException]] = []
        self._fatal: BaseException | None = None
        self._is_over = False
        """No thread begins another call."""

    def run(self) -> list[tuple[int, BaseException]]:
        """The calls that raised."""
        threads = [
            threading.Thread(target=self._call, args=(i,), name="sink", daemon=True) for i in range(len(self._began_s))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_EVERY_S)
                self._check()
        if self._fatal:
            raise self._fatal
        return self._errors

    def _call(self, number: int) -> None:
        function, given = self._sink.function, self._given
        for i in self._next:
            if self._is_over:
                break
            self._began_s[number] = time.monotonic()
            try:
                function(given[i])
            except RAISED as error:
                self._errors.append((i, error))
            except BaseException as error:
                self._fatal, self._is_over = error, True
        self._began_s[number] = None

    def _check(self) -> None:
        now_s, limit_s = time.monotonic(), self._sink.timeout_s
        if any(began_s is not None and now_s - began_s > limit_s for began_s in self._began_s):
            self._is_over = True
            raise SinkHangs(
                f"A call of sink {self._sink.name!r} has not returned for {limit_s:g} s, so its task was ended: find "
                "out what it waits for, or allow it more with sink_timeout_s."
            )
