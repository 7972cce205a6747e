"""Messages that take their worker down: the stream goes on, the killer dies alone, and the others lose no attempt."""

from __future__ import annotations

import os
import signal
import time

import pytest
from pyspark.sql import Row

from redis_acker import Acker, DeadLetters
from redis_acker.retries.book import RetryBook
from tests.spark.streams.conftest import MakeStream
from tests.spark.streams.feed import SCHEMA, SPOUT, Feed
from tests.waiting import wait_until


def books(acker: Acker) -> tuple[int, int]:
    [found] = [one for one in acker.stats().spouts if one.name == SPOUT]
    return found.completed, found.pending


@pytest.mark.parametrize("how", ["exit in a step", "kill in the sink", "hang in the sink"])
def test_a_message_that_kills_its_worker_dies_alone_and_the_stream_goes_on(
    stream: MakeStream, acker: Acker, feed: Feed, how: str
) -> None:
    """The innocent ones are completed at their first attempt, and each is done once."""
    feed.put("one.json", range(200))
    feed.put("two.json", range(200, 220))
    sink = feed.sink

    def step(row: Row) -> Row:
        if row.number == 77 and how == "exit in a step":
            os._exit(1)
        return row

    def kill(row: Row) -> None:
        if row.number == 77 and how == "kill in the sink":
            os.kill(os.getpid(), signal.SIGKILL)
        if row.number == 77 and how == "hang in the sink":
            time.sleep(600)
        sink(row)

    job = stream().map(step, SCHEMA).sink(kill, per="row", sink_timeout_s=2)
    with job.start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: (query.counters.completed, query.counters.dead) == (219, 1) or query.last_error, 240)
        assert query.last_error is None
        found = query.counters

    assert (found.batches, found.messages, found.failed, found.retried, found.waiting) == (2, 220, 3, 2, 0)
    [letter] = DeadLetters(acker, spout=SPOUT)
    assert (letter.message_id, letter.payload) == ("m77", [{"id": "m77", "number": 77}])
    assert [one.attempt for one in letter.history] == [1, 2, 3]
    assert all(one.error.startswith("its worker died of it, alone with it in a job: ") for one in letter.history)
    assert set(feed.sunk()) == set(range(220)) - {77}
    assert RetryBook(acker, SPOUT).load() == {}
    assert books(acker) == (219, 0)
