"""Jobs whose driver completes the messages: what is noted as written is acked, and not done again."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

from redis_acker import Acker, Rotator
from redis_acker.errors import ServerUnavailable, StoreLost
from redis_acker.retries.book import RetryBook
from redis_acker.retries.policy import RetryPolicy
from redis_acker.store.hashes import StoredHash
from redis_acker.store.ids import U64Array, sequence_of
from spark_integration.errors import JobFailed
from spark_integration.runs.portions import own_edges
from spark_integration.runs.shuffled import MessagesInRun
from spark_integration.streams.query import MessageQuery
from spark_integration.streams.spout import StreamSpout
from spark_integration.streams.tally import StreamTally
from spark_integration.streams.written import WrittenPart, WrittenParts, written_before
from tests.backends import Servers
from tests.spark.streams.conftest import MakeStream
from tests.spark.streams.feed import NOW, SCHEMA, SPOUT, Feed
from tests.waiting import wait_until

BATCH = "query 1 batch 0"


@pytest.fixture
def spout(acker: Acker) -> StreamSpout:
    return StreamSpout(acker, SPOUT, RetryPolicy(), lambda row: None, None, hands_over=False)


@pytest.fixture
def acks_sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The acks that are sent. The store is away at the first."""
    real, calls = Acker.ack, list[Any]()

    def ack(acker: Acker, *args: Any, **options: Any) -> Any:
        calls.append(options)
        if len(calls) == 1:
            raise ServerUnavailable("It is away.")
        return real(acker, *args, **options)

    monkeypatch.setattr(Acker, "ack", ack)
    return calls


def books(acker: Acker) -> tuple[int, int]:
    [found] = [one for one in acker.stats().spouts if one.name == SPOUT]
    return found.completed, found.pending


def note(acker: Acker, spout: StreamSpout, lives: list[str], *, knows: str = "what failed") -> U64Array:
    """Ten messages are written, and one of them has failed. knows: how much of that the store has not lost."""
    roots = acker.allocate(SPOUT, 10)
    if knows:
        acker.init(roots, own_edges(roots), message_ids=list(range(10)))
    if knows == "what failed":
        acker.fail(roots[3:4])
    spans = [(sequence_of(int(roots[0])), 10)]
    WrittenPart(WrittenParts(acker, spout, BATCH), "").note("run 1", lives, spans, roots[3:4].tolist())
    return roots


def test_what_is_written_is_acked_by_the_next_start(
    acker: Acker, spout: StreamSpout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once that is done, what becomes of the servers does not matter."""
    note(acker, spout, acker.shards.server_lives())
    assert books(acker) == (0, 9)

    assert WrittenParts(acker, spout, BATCH).finish("") == 10
    assert books(acker) == (9, 0)
    monkeypatch.setattr(acker.shards, "server_lives", lambda: ["another life"])
    assert WrittenParts(acker, spout, BATCH).finish("") == 10
    WrittenParts(acker, spout, BATCH).drop()


def test_what_is_written_is_complete_though_it_timed_out_before_the_next_start(
    servers: Servers, namespace: str
) -> None:
    """That is no attempt at the messages, but the failure of one is."""
    with Acker(servers.get("redis-7.0").url, namespace=f"{namespace}-short", timeout_ms=300) as acker:
        spout = StreamSpout(acker, SPOUT, RetryPolicy(), lambda row: None, None, hands_over=False)
        note(acker, spout, acker.shards.server_lives())
        rotator = Rotator(acker).start()
        wait_until(lambda: books(acker) == (0, 0), 30)
        rotator.stop()
        tally = StreamTally(acker, SPOUT, spout, lambda: None)
        spout.hold()
        spout.written = written_before(acker, spout)
        tally.read()
        assert WrittenParts(acker, spout, BATCH).finish("") == 10
        assert (tally.completed, spout.failed) == (9, 1)
        assert books(acker) == (9, 0)
        assert {one: retry.attempt for one, retry in RetryBook(acker, SPOUT).load().items()} == {3: 1}
        spout.let_go()


def test_it_is_done_again_if_a_server_may_have_lost_what_failed(acker: Acker, spout: StreamSpout) -> None:
    note(acker, spout, ["another life"])
    assert WrittenParts(acker, spout, BATCH).finish("") is None
    assert books(acker) == (0, 9)
    assert not acker.shards.failed_rows(f"{spout.rows_name}:written").exists()


def test_a_message_that_failed_is_not_completed_though_the_store_forgot_it(acker: Acker, spout: StreamSpout) -> None:
    note(acker, spout, acker.shards.server_lives(), knows="what is pending")
    parts = WrittenParts(acker, spout, BATCH)
    assert parts.finish("") == 10
    assert books(acker) == (9, 1)
    parts.drop()


def test_acks_of_messages_that_the_store_has_forgotten_are_not_kept_for_them(acker: Acker, spout: StreamSpout) -> None:
    roots = note(acker, spout, acker.shards.server_lives(), knows="")
    parts = WrittenParts(acker, spout, BATCH)
    assert parts.finish("") == 10
    assert acker.inspect(int(roots[0])).state == "unknown"
    parts.drop()


def test_a_query_that_has_lost_its_spout_takes_no_note_of_its_successor_away(acker: Acker, spout: StreamSpout) -> None:
    """It was paused while it acked what it had written. The successor has acked it, and finished the micro-batch, and
    is at the next one when the other wakes up."""
    zombie = WrittenParts(acker, spout, BATCH)
    WrittenPart(zombie, "").note("run 1", acker.shards.server_lives(), [], [])
    successor = WrittenParts(acker, spout, BATCH)
    assert successor.finish("") == 0
    zombie.forget("")  # as if its messages had been lost, since somebody has acked them
    assert WrittenParts(acker, spout, BATCH).finish("") == 0

    successor.drop()
    successor = WrittenParts(acker, spout, "query 1 batch 1")
    WrittenPart(successor, "").note("run 2", acker.shards.server_lives(), [], [])
    zombie.drop()
    found = WrittenParts(acker, spout, "query 1 batch 1")
    assert found.finish("") == 0
    found.drop()
    acker.shards.failed_rows(f"{spout.rows_name}:written").delete()  # what the one noted that wrote while it was found


def test_a_query_that_takes_over_writes_everything_itself(acker: Acker, spout: StreamSpout) -> None:
    note(acker, spout, acker.shards.server_lives())
    spout.hold()
    spout.start_batches_over()
    assert WrittenParts(acker, spout, BATCH).finish("") is None
    spout.let_go()


def test_a_message_that_failed_in_what_was_written_waits_with_its_row(
    stream: MakeStream, acker: Acker, feed: Feed, acks_sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is away when the others are acked, and the failure was not read before."""
    feed.put("one.json", range(40))

    def refuse(row: Row) -> Row:
        if row.number == 3:
            raise ValueError("three")
        return row

    monkeypatch.setattr(MessageQuery, "_look", lambda query: query._spout.renew_lease())
    job = stream(retries=RetryPolicy(first_ms=3_600_000)).map(refuse, SCHEMA)
    job.repartition(2).sink(feed.sink, per="row").start(checkpoint=feed.checkpoint, trigger=NOW).wait()
    [retry] = RetryBook(acker, SPOUT).load().values()
    assert len(acks_sent) == 2
    assert retry.payload is not None


def test_notes_of_another_micro_batch_say_nothing(acker: Acker, spout: StreamSpout) -> None:
    note(acker, spout, acker.shards.server_lives())
    other = WrittenParts(acker, spout, "query 1 batch 1")
    assert other.finish("") is None
    other.drop()


def test_a_store_that_is_away_while_messages_are_acked_has_them_acked_once(
    stream: MakeStream, acker: Acker, feed: Feed, acks_sent: list[Any]
) -> None:
    feed.put("one.json", range(40))
    job = stream().repartition(2).sink(feed.sink, per="row")
    job.start(checkpoint=feed.checkpoint, trigger=NOW).wait()
    assert len(acks_sent) == 2
    assert feed.sunk() == dict.fromkeys(range(40), 1)
    assert books(acker) == (40, 0)


def test_a_store_that_has_lost_what_is_acked_has_it_done_again(
    stream: MakeStream, acker: Acker, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.put("one.json", range(40))

    def lose(*_: object) -> None:
        raise StoreLost("It has lost roots.")

    job = stream().repartition(2).sink(feed.sink, per="row")
    with monkeypatch.context() as patched:
        patched.setattr(MessagesInRun, "complete", lose)
        with pytest.raises(StoreLost):
            job.start(checkpoint=feed.checkpoint, trigger=NOW).wait()
    assert books(acker) == (0, 0)

    job.start(checkpoint=feed.checkpoint, trigger=NOW).wait()
    assert feed.sunk() == dict.fromkeys(range(40), 2)
    assert books(acker) == (40, 0)


@pytest.fixture
def written(stream: MakeStream, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """A micro-batch that is written, by a query that could not ack it, nor end well."""
    feed.put("one.json", range(40))
    job = stream().repartition(2).sink(feed.sink, per="row")
    with monkeypatch.context() as patched:
        patched.setattr(MessagesInRun, "complete", raise_error)
        with pytest.raises(JobFailed, match="no more"):
            job.start(checkpoint=feed.checkpoint, trigger=NOW).wait()
    assert feed.sunk() == dict.fromkeys(range(40), 1)
    return feed


def raise_error(*_: object) -> None:
    raise RuntimeError("no more")


def test_steps_without_a_shuffle_do_not_do_again_what_is_written(
    written: Feed, stream: MakeStream, acker: Acker
) -> None:
    assert books(acker) == (0, 40)
    stream().sink(written.sink, per="row").start(checkpoint=written.checkpoint, trigger=NOW).wait()
    assert written.sunk() == dict.fromkeys(range(40), 1)
    assert books(acker) == (40, 0)


def test_steps_without_a_shuffle_do_not_do_again_the_parts_that_are_written(
    written: Feed, stream: MakeStream, acker: Acker, spout: StreamSpout
) -> None:
    """The whole could not be done at once, so the other parts are still to be done."""
    stored = spout.written_parts
    [(field, text)] = stored.items()
    stored.remove([field])
    stored.put({f"3{field.decode()}": text})
    stream().sink(written.sink, per="row").start(checkpoint=written.checkpoint, trigger=NOW).wait()
    in_part = {n for n, count in written.sunk().items() if count == 1}
    assert 0 < len(in_part) < 40
    assert books(acker)[1] == 0


def test_tasks_that_keep_the_books_cost_no_look_at_what_is_written(
    stream: MakeStream, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But at the start and for the first micro-batch: an earlier start of the query may have had other steps."""
    real, calls = StoredHash._run, list[Any]()

    def run(stored: StoredHash, *args: Any) -> Any:
        calls.append(args[:2])
        return real(stored, *args)

    monkeypatch.setattr(StoredHash, "_run", run)
    for i in range(3):
        feed.put(f"{i}.json", range(10 * i, 10 * i + 10))
    query = stream().sink(feed.sink, per="row").start(checkpoint=feed.checkpoint, trigger=NOW)
    assert query.wait(120)
    assert query.counters.batches == 3
    assert [command for command, key in calls if str(key).endswith(":written")] == ["HSCAN", "HSCAN"]
