"""What has timed out when the run that follows a dead driver begins."""

import pytest
from pyspark.sql import SparkSession

from redis_acker import DeadLetters, RetryPolicy
from redis_acker.retries.book import RetryBook
from spark_integration.runs.booked import BookedRun, InputFingerprint
from spark_integration.runs.life import RunOptions
from spark_integration.runs.messages import MessageFrame
from tests.clock import Clock
from tests.spark.frames.tasks import Died, MakeRun, Run, batches_of, expire

ROWS = 20


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def dead(make_run: MakeRun, clock: Clock) -> Run:
    return make_run(clock=clock)


def next_run(dead: Run, spark: SparkSession, read: str, **retries: int) -> BookedRun:
    """Of the same input as the dead one if that is called "input", as it is there."""
    messages = MessageFrame(spark.range(ROWS), dead.spout_name, "id", keeps_order=True)
    options = RunOptions(dead.acker, RetryPolicy(**retries), 0, None, False)
    return BookedRun(messages, options, InputFingerprint(read, "", 1), "steps")


@pytest.mark.parametrize("read", ["input", "another input"])
def test_what_was_in_its_sink_is_no_attempt(dead: Run, clock: Clock, spark: SparkSession, read: str) -> None:
    """That messages waited in a run that died is no attempt at them, whether the next continues it or starts over."""

    def die(number: int) -> None:
        if number == ROWS // 2:
            raise Died

    assert isinstance(dead.attempt(act=die)(batches_of(ROWS)).error, Died)
    expire(dead, clock)

    with next_run(dead, spark, read, max_attempts=1):
        assert RetryBook(dead.acker, dead.spout_name).load() == {}
        assert len(DeadLetters(dead.acker, spout=dead.spout_name)) == 0


def test_what_had_left_its_sink_is_tried_again(dead: Run, clock: Clock, spark: SparkSession) -> None:
    """It was not acked in time, and nobody will work on its portion again: its messages are those that failed."""
    attempt = dead.attempt()

    def die(name: str) -> None:
        if name == "ack":
            raise Died

    attempt.wire.before = die
    assert isinstance(attempt(batches_of(ROWS)).error, Died)
    expire(dead, clock)

    with next_run(dead, spark, "input") as run:
        assert set(RetryBook(dead.acker, dead.spout_name).load()) == set(range(ROWS))
        assert run._completed_before == 0
        assert {*run._failed_before} == set(range(ROWS))
