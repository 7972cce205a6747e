"""Micro-batches whose jobs die as a whole: done in ever smaller parts, until the message that kills them is alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from redis_acker.errors import AckerError
from spark_integration.streams.deaths import death_in

_BITS = 3
"""Of a hash, by which a part is split: into eight, so that a row that hangs is found after few jobs that hang."""

_MOST_LEVELS = 64 // _BITS

Done = TypeVar("Done")

log = logging.getLogger(__name__)


def run_in_parts(
    frame: DataFrame,
    column: str,
    run: Callable[[DataFrame, str], Done],
    give_up: Callable[[DataFrame, str, str], None],
    *,
    is_split: Callable[[str], bool] = lambda part: False,
    part: str = "",
) -> Iterator[Done]:
    """Runs a job over a frame. If a worker dies, over parts of it, each as a job of its own. Rows with the same value
    in a column stay together.

    run, give_up: are given rows and the name of the part that they are: a digit for each time it was split, so that the
    whole is ''. give_up: the rows of one value that a worker died of, and why.
    is_split: whether a part has been split before, and is not to be tried as a whole."""
    name = F.col(f"`{column}`")
    if not is_split(part):
        try:
            yield run(frame, part)
            return
        except AckerError as error:
            death = death_in(error)
            if not death:
                raise
        if len(part) >= _MOST_LEVELS or len(frame.select(name).distinct().limit(2).collect()) == 1:
            give_up(frame, part, death)
            return
        log.warning("The job of a micro-batch is done again in parts, because a worker died: %s", death)
    digit = F.shiftrightunsigned(F.xxhash64(name), len(part) * _BITS).bitwiseAND((1 << _BITS) - 1)
    for i in range(1 << _BITS):
        yield from run_in_parts(frame.where(digit == i), column, run, give_up, is_split=is_split, part=f"{part}{i}")
