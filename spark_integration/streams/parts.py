"""Micro-batches whose jobs die as a whole: done in ever smaller parts, until the message is alone that they die of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from redis_acker.errors import AckerError
from spark_integration.runs.summary import Summary
from spark_integration.streams.deaths import death_in

_BITS = 3
"""Of a hash, by which a part is split: into eight, so that a row that hangs is found after few jobs that hang."""

_MOST_LEVELS = 64 // _BITS

log = logging.getLogger(__name__)


def run_in_parts(
    frame: DataFrame,
    column: str,
    run: Callable[[DataFrame], Summary],
    give_up: Callable[[DataFrame, str], None],
    *,
    level: int = 0,
) -> Iterator[Summary]:
    """Runs a job over a frame. If a worker dies, over parts of it, each as a job of its own. Rows with the same value
    in a column stay together.

    give_up: is given the rows of one value that a worker died of, and why."""
    try:
        yield run(frame)
        return
    except AckerError as error:
        death = death_in(error)
        if not death:
            raise
    name = F.col(f"`{column}`")
    if level >= _MOST_LEVELS or len(frame.select(name).distinct().limit(2).collect()) == 1:
        give_up(frame, death)
        return
    log.warning("The job of a micro-batch is done again in parts, because a worker died: %s", death)
    part = F.shiftrightunsigned(F.xxhash64(name), level * _BITS).bitwiseAND((1 << _BITS) - 1)
    for i in range(1 << _BITS):
        yield from run_in_parts(frame.where(part == i), column, run, give_up, level=level + 1)
