"""A spout has one query at a time. One that has lost its spout, and does not know it yet, does no harm to the other."""

from __future__ import annotations

from typing import Any

import pytest

from redis_acker import Acker
from redis_acker.errors import SpoutTaken
from redis_acker.store.progress import RunProgress
from redis_acker.store.run_records import RunAbout
from spark_integration.runs import spout as run_spout
from spark_integration.runs.shuffled import MessagesInRun
from spark_integration.streams.query import MessageQuery
from tests.spark.streams.conftest import MakeStream
from tests.spark.streams.feed import NOW, SPOUT, Feed
from tests.waiting import wait_until


def give_to_another(acker: Acker) -> None:
    """Another driver holds the spout from now on."""
    acker.shards.ask(0, "SET", acker.shards.keys[0].lease(acker.spout_number(SPOUT)), "another", "PX", 60_000)


def test_a_spout_has_one_query_at_a_time(
    stream: MakeStream, acker: Acker, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queries with different spouts share an acker."""
    monkeypatch.setattr(run_spout, "WAIT_S", 0.2)
    feed.put("one.json", range(10))
    with (
        stream().sink(feed.sink, per="row").start(checkpoint=feed.checkpoint) as one,
        stream("others").sink(lambda batch: None).start(checkpoint=str(feed.directory / "others")) as other,
    ):
        with pytest.raises(SpoutTaken, match="'numbers' is driven by"):
            stream().sink(feed.sink, per="row").start(checkpoint=str(feed.directory / "second"))
        wait_until(lambda: one.counters.completed == other.counters.completed == 10, 120)
    assert acker.shards.lease_holder(acker.spout_number(SPOUT)) is None


def test_a_query_whose_spout_was_taken_stops(stream: MakeStream, acker: Acker, feed: Feed) -> None:
    feed.put("one.json", range(10))
    query = stream().sink(feed.sink, per="row").start(checkpoint=feed.checkpoint)
    wait_until(lambda: query.counters.completed == 10, 120)
    give_to_another(acker)

    with pytest.raises(SpoutTaken, match="taken over by another"):
        query.wait(120)
    assert not query.query.isActive


def test_a_query_whose_spout_was_taken_leaves_the_micro_batch_of_the_other_alone(
    stream: MakeStream, acker: Acker, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds out when its next micro-batch begins."""
    monkeypatch.setattr(MessageQuery, "_look", lambda query: None)
    query = stream().sink(feed.sink, per="row").start(checkpoint=feed.checkpoint)
    assert isinstance(query, MessageQuery)
    give_to_another(acker)
    progress = RunProgress(acker, acker.spout_number(SPOUT))
    progress.start("other", RunAbout(SPOUT, 0, "elsewhere", 1, "", ""))
    query._spout._lease._renew_at_s = 0  # as after a pause
    feed.put("one.json", range(10))

    with pytest.raises(SpoutTaken, match="taken over by another"):
        query.wait(120)
    assert progress.stored_name() == "other"
    progress.drop()


def test_a_run_that_has_lost_its_spout_fails_and_closes_nothing(
    stream: MakeStream, acker: Acker, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has failed since is for the query that holds the spout now: only that knows what it has in work."""
    monkeypatch.setattr(MessageQuery, "_look", lambda query: None)
    feed.put("one.json", range(10))
    closed: list[MessagesInRun] = []
    monkeypatch.setattr(MessagesInRun, "close", closed.append)

    def lose(run: MessagesInRun, *_: Any) -> None:
        give_to_another(acker)
        run._spout._lease._renew_at_s = 0  # as after a pause
        raise RuntimeError("no more")

    monkeypatch.setattr(MessagesInRun, "check_stored", lose)
    job = stream().repartition(2).sink(feed.sink, per="row")
    query = job.start(checkpoint=feed.checkpoint, trigger=NOW)
    with pytest.raises(Exception, match="no more"):
        query.wait(120)
    assert closed == []
    [stats] = [one for one in acker.stats().spouts if one.name == SPOUT]
    assert (stats.pending, stats.failed) == (10, 0)
    assert acker.shards.lease_holder(acker.spout_number(SPOUT)) == "another"
    RunProgress(acker, acker.spout_number(SPOUT)).drop()
