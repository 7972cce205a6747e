"""Rows with the id of another row are dead letters, also when a micro-batch is done again, or its rows have left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from redis_acker import Acker, Anchors, DeadLetters, RetryPolicy
from redis_acker.errors import ServerUnavailable
from redis_acker.retries.book import FailedAttempt, Retry, RetryBook
from redis_acker.store.hashes import StoredHash
from spark_integration.runs import keeping
from spark_integration.runs.strays import Strays
from spark_integration.runs.tracking import COLUMN
from spark_integration.streams.spout import StreamSpout
from tests.spark.streams.conftest import MakeStream
from tests.spark.streams.feed import SPOUT, Feed
from tests.spark.streams.killed import kill_when_held, run_to_end
from tests.waiting import wait_until


def letters(acker: Acker) -> dict[int, str]:
    """By the number in the row of a dead letter, why it is one."""
    found = [(one.payload, one.history[-1].error) for one in DeadLetters(acker, spout=SPOUT)]
    return {payload[0]["number"]: error for payload, error in found if payload}


@pytest.mark.full
def test_a_repeated_id_is_a_dead_letter_also_if_the_first_row_was_done_before_a_crash(acker: Acker, feed: Feed) -> None:
    rows = [{"id": f"m{n}", "number": n} for n in range(60)]
    feed.put_rows("one.json", [*rows, {"id": "m3", "number": 103}])
    (feed.directory / "mended").touch()
    kill_when_held(acker, feed, cores=2, holds="in sink")
    assert 3 in feed.sunk()

    found = run_to_end(acker, feed, cores=1)
    assert feed.sunk() == dict.fromkeys(range(60), 1)
    assert letters(acker) == {103: "another row of the same micro-batch has the same message id"}
    assert found["messages"] == 61


def test_a_row_with_the_id_of_a_message_that_another_application_works_on_is_a_dead_letter(
    stream: MakeStream, acker: Acker, feed: Feed
) -> None:
    """So the row that is kept to bring the message again is its own. When it is done, its id is free."""
    file = feed.directory / "left"

    def leave(row: Row) -> None:
        with file.open("a") as left:
            left.write(f"{row.anchors.hex()}\n")

    feed.put("one.json", range(5))
    with stream().sink(leave, per="row", anchors="anchors").start(checkpoint=feed.checkpoint) as query:
        wait_until(lambda: query.counters.batches == 1 or query.last_error, 120)
        feed.put_rows("two.json", [{"id": "m3", "number": 103}, {"id": "m5", "number": 5}])
        wait_until(lambda: query.counters.batches == 2 or query.last_error, 120)
        said = {103: "a message with the same id is not done: another application is at work on it"}
        assert letters(acker) == said
        [(_, row)] = [one for one in kept(acker) if one[0] == b"s:m3"]
        assert b"103" not in row

        for anchors in feed.left():
            ack(acker, anchors)
        wait_until(lambda: query.counters.completed == 6 or query.last_error, 120)
        feed.put_rows("three.json", [{"id": "m3", "number": 203}])
        wait_until(lambda: query.counters.batches == 3 or query.last_error, 120)
        ack(acker, feed.left()[-1])
        wait_until(lambda: query.counters.completed == 7 or query.last_error, 120)
        assert query.last_error is None
    assert letters(acker) == said


def ack(acker: Acker, anchors: bytes) -> None:
    """The other application is done with a row."""
    found = Anchors.from_bytes(anchors)
    acker.ack_edges(list(found), list(found.values()))


def kept(acker: Acker) -> list[tuple[bytes, bytes]]:
    return list(acker.shards.failed_rows(f"stream {acker.spout_number(SPOUT)}").items())


@pytest.mark.parametrize("is_away", [False, True])
def test_a_row_that_was_set_aside_does_not_take_the_place_of_the_message_that_has_its_id(
    acker: Acker, is_away: bool
) -> None:
    """Its replay is asked for while that waits for another attempt, or another application is at work on it."""
    spout = StreamSpout(acker, SPOUT, RetryPolicy(), lambda row: row[0]["id"], None, hands_over=is_away)
    book, first, other = RetryBook(acker, SPOUT), [{"id": "a", "number": 1}], [{"id": "a", "number": 101}]
    if is_away:
        spout._put_row("a", json.dumps(first))
    else:
        book.note({"a": Retry([FailedAttempt(1, "failed", "step", "no", 0)], payload=first)})
    spout.hold()
    spout.give_up("stray 1", "set aside", other)
    dead = DeadLetters(acker, spout=SPOUT)
    assert dead.replay(next(iter(dead)))
    spout.accept_requests()

    assert [retry.payload for retry in book.load().values()] == ([] if is_away else [first])
    assert list(letters(acker)) == [101]
    assert "a message with the same id" in letters(acker)[101]
    spout.let_go()


@pytest.fixture
def rows(acker: Acker) -> Iterator[tuple[StoredHash, StoredHash]]:
    """Where rows are set aside, and where those of messages are kept that are not done."""
    found = acker.shards.failed_rows("aside"), acker.shards.failed_rows("kept")
    yield found
    for one in found:
        one.delete()


def batch(*rows: tuple[str, int]) -> pa.RecordBatch:
    keys = pa.array([{"key": hash(name)} for name, _ in rows], pa.struct([("key", pa.int64())]))
    ids, numbers = pa.array([name for name, _ in rows]), pa.array([number for _, number in rows])
    return pa.RecordBatch.from_arrays([ids, numbers, keys], names=["id", "number", COLUMN])


def numbers_left(rows: tuple[StoredHash, StoredHash], of: pa.RecordBatch) -> list[int]:
    """By one attempt at a partition."""
    strays = Strays(rows[0], "id", pa.array([], pa.int64()).to_numpy(), rows[1])
    return [one for some in strays.of_new_messages(iter([of])) for one in some.column("number").to_pylist()]


def test_a_row_that_was_set_aside_is_so_in_every_attempt(rows: tuple[StoredHash, StoredHash]) -> None:
    """Attempts have to see the same rows, though the message that has its id may be done by then."""
    rows[1].put({"s:a": '[{"id": "a", "number": 1}]', "s:b": '[{"id": "b", "number": 2}]'})
    some = batch(("a", 1), ("b", 102), ("c", 3))
    assert numbers_left(rows, some) == [1, 3]
    rows[1].delete()
    assert numbers_left(rows, some) == [1, 3]
    assert numbers_left(rows, batch(("b", 2))) == [2]


def test_rows_are_set_aside_when_the_store_is_back(
    rows: tuple[StoredHash, StoredHash], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = StoredHash._run, list[object]()

    def run(stored: StoredHash, *args: Any) -> Any:
        calls.append(args)
        if len(calls) % 2:
            raise ServerUnavailable("It is away.")
        return real(stored, *args)

    rows[1].put({"s:b": '[{"id": "b", "number": 2}]'})
    monkeypatch.setattr(keeping, "_LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(StoredHash, "_run", run)
    assert numbers_left(rows, batch(("b", 102), ("c", 3))) == [3]
