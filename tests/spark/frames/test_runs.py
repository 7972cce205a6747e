"""Runs: attempts across runs, replays, dead letters, and runs that die."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from redis_acker import Acker, DeadLetters, RetryPolicy
from redis_acker.errors import AckerError, SpoutTaken, StoreLost
from redis_acker.retries.book import RetryBook
from redis_acker.store.lease import Lease
from spark_integration import JobFailed, TooManyFailures, track
from spark_integration.runs import messages, shuffled, spout, tally, watch
from tests.backends import Servers
from tests.spark.frames.books import books
from tests.spark.frames.conftest import AT_ONCE, MakeFrame


def fail_thirds(row: Row) -> Row:
    if row.number % 3 == 0:
        raise ValueError("a third")
    return row


def fail_if_there(path: Path) -> Any:
    """A step that fails m1 once: while a file is not there, which it makes."""

    def step(row: Row) -> Row:
        if row.number == 1 and not path.exists():
            path.touch()
            raise ValueError("not yet")
        return row

    return step


SCHEMA = "id string, number long"


def test_a_message_that_failed_is_at_its_next_attempt_in_the_next_run(tracked: MakeFrame, acker: Acker) -> None:
    frame = tracked(6).map(fail_thirds, SCHEMA, name="thirds")

    attempts = [[(one.message_id, one.attempt, one.dead) for one in _run(frame).failures] for _ in range(4)]

    assert [sorted(some) for some in attempts] == [
        [("m0", 1, False), ("m3", 1, False)],
        [("m0", 2, False), ("m3", 2, False)],
        [("m0", 3, True), ("m3", 3, True)],
        [("m0", 1, False), ("m3", 1, False)],  # given up before; whoever brings it again begins anew
    ]


def test_a_message_that_is_given_up_is_a_dead_letter_with_its_history(tracked: MakeFrame, acker: Acker) -> None:
    frame = tracked(3).map(fail_thirds, SCHEMA, name="thirds")
    for _ in range(3):
        _run(frame)

    [letter] = DeadLetters(acker, spout="numbers")

    assert (letter.message_id, letter.fatal) == ("m0", False)
    assert [(one.attempt, one.component, one.error) for one in letter.history] == [
        (attempt, "thirds", "ValueError: a third") for attempt in (1, 2, 3)
    ]


def test_a_message_that_is_complete_at_last_begins_anew(tracked: MakeFrame, tmp_path: Path) -> None:
    frame = tracked(3).map(fail_if_there(tmp_path / "flag"), SCHEMA, name="once")

    assert [one.message_id for one in _run(frame).failures] == ["m1"]
    assert _run(frame).failed == 0
    (tmp_path / "flag").unlink()
    assert [(one.message_id, one.attempt) for one in _run(frame).failures] == [("m1", 1)]


def test_replays_within_a_call_bring_only_what_failed(tracked: MakeFrame, acker: Acker, tmp_path: Path) -> None:
    written = tmp_path / "written"

    def note(batch: Any) -> None:
        with written.open("a") as file:
            file.writelines(f"{one}\n" for one in batch["id"].to_pylist())

    frame = tracked(6, replays=2).map(fail_if_there(tmp_path / "flag"), SCHEMA)
    summary = frame.sink(note)

    assert (summary.tracked, summary.completed, summary.failed) == (6, 6, 0)
    assert sorted(written.read_text().split()) == [f"m{i}" for i in range(6)]
    assert books(acker) == (7, 6, 1, 0)


def test_replays_end_with_dead_letters(tracked: MakeFrame, acker: Acker) -> None:
    summary = _run(tracked(9, replays=5).map(fail_thirds, SCHEMA))

    assert (summary.tracked, summary.completed, summary.failed, summary.dead) == (9, 6, 3, 3)
    assert books(acker) == (15, 6, 9, 0)
    assert len(DeadLetters(acker, spout="numbers")) == 3


def test_too_many_failures_cancel_the_job(
    tracked: MakeFrame, acker: Acker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(row: Row) -> Row:
        import time

        if row.number < 20:
            raise ValueError("early")
        time.sleep(0.05)
        return row

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    monkeypatch.setattr(watch, "_LOOK_EVERY_S", 0.05)
    frame = tracked(400, max_failures=10).order_by("number").map(slow, SCHEMA)

    with pytest.raises(TooManyFailures, match="20 messages have failed, and this run allows 10: its job was"):
        frame.sink(lambda batch: None)
    assert books(acker) == (400, 0, 400, 0)


def test_failures_are_counted_to_the_last(tracked: MakeFrame, acker: Acker) -> None:
    with pytest.raises(TooManyFailures, match="1 messages have failed, and this run allows 0"):
        _run(tracked(3, max_failures=0).map(fail_thirds, SCHEMA))
    assert books(acker) == (3, 2, 1, 0)  # what was complete before stays so


def test_failed_deliveries_are_counted_too(tracked: MakeFrame, acker: Acker) -> None:
    handed_over = tracked(6).to_df().localCheckpoint()
    with pytest.raises(TooManyFailures, match="2 messages have failed, and this run allows 1"):
        _run(track(handed_over, anchors="anchors", acker=acker, name="next", max_failures=1).map(fail_thirds, SCHEMA))


def test_a_run_ends_though_spark_is_gone(
    tracked: MakeFrame, acker: Acker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(tag: str) -> None:
        raise ConnectionRefusedError("the JVM has ended")

    monkeypatch.setattr(spark.sparkContext, "removeJobTag", gone)
    before = threading.active_count()
    with pytest.raises(JobFailed, match="told to"):
        tracked(3).write(lambda writer: (_ for _ in ()).throw(RuntimeError("told to")))
    assert books(acker) == (3, 0, 3, 0)
    assert threading.active_count() == before
    monkeypatch.undo()
    assert _run(tracked(3)).completed == 3


def test_a_run_that_lost_its_spout_leaves_the_books_to_its_successor(
    tracked: MakeFrame, acker: Acker, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs until its lease has ended; another run takes the spout, and fails its roots, which is no attempt."""
    # Else it may take the spout again, or cancel its job, which the successor's is part of here.
    monkeypatch.setattr(watch.Watch, "_loop", lambda self: None)
    keys = acker.shards.keys[0]
    number = acker.spout_number("numbers")
    client = servers.client("redis-7.0")

    def hang(writer: Any) -> None:
        client.delete(keys.lease(number))
        successor = tracked(3).map(fail_thirds, SCHEMA)
        assert [(one.message_id, one.attempt) for one in _run(successor).failures] == [("m0", 1)]
        Lease(acker, "numbers").take(wait=False, stop=threading.Event())
        client.hset(keys.progress(number), "name", "the successor's next")
        raise RuntimeError("too late")

    with pytest.raises(AckerError, match=r"too late|was taken over"):
        tracked(3).write(hang)

    assert {key: retry.attempt for key, retry in RetryBook(acker, "numbers").load().items()} == {"m0": 1}
    assert client.hget(keys.progress(number), "name") == b"the successor's next"


@pytest.fixture
def colliding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the first salt every message has the same key."""
    real = messages.MessageFrame._key

    def key(one: messages.MessageFrame) -> Any:
        return F.lit(7).cast("long") if one.salt == 0 else real(one)

    monkeypatch.setattr(messages.MessageFrame, "_key", key)


def test_messages_that_share_a_key_fail_together(tracked: MakeFrame, acker: Acker, colliding: None) -> None:
    bad = _run(tracked(6).order_by("number").map(fail_thirds, SCHEMA))
    good = _run(tracked(6, spout="others").order_by("number"))

    assert (bad.tracked, bad.completed, good.completed) == (6, 0, 6)
    assert books(acker) == (6, 0, 6, 0)


def test_keys_of_rows_that_leave_are_salted_anew(tracked: MakeFrame, colliding: None) -> None:
    assert len({row.anchors[:8] for row in tracked(6).to_df().collect()}) == 6


def test_a_failure_that_another_reader_took_is_not_counted_as_complete(
    tracked: MakeFrame, acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shuffled.MessagesInRun.complete

    def steal(one: shuffled.MessagesInRun, token: str) -> None:
        with acker.failures("numbers") as failures:
            assert sum(map(len, failures.consume())) == 2
        real(one, token)

    monkeypatch.setattr(shuffled.MessagesInRun, "complete", steal)
    monkeypatch.setattr(watch, "_LOOK_EVERY_S", 60.0)  # the watch reads failures too

    summary = _run(tracked(6).map(fail_thirds, SCHEMA).order_by("number"))

    assert (summary.completed, summary.failed, summary.failures) == (4, 2, ())
    assert "2 that are not listed" in str(summary)


def test_the_failure_of_a_run_is_no_attempt_at_its_messages(tracked: MakeFrame, acker: Acker) -> None:
    def full(writer: Any) -> None:
        raise OSError("disk full")

    frame = tracked(9, retries=RetryPolicy()).map(fail_thirds, SCHEMA)
    for _ in range(RetryPolicy().max_attempts + 1):
        with pytest.raises(JobFailed, match="disk full"):
            frame.write(full)

    assert not RetryBook(acker, "numbers").load()
    assert not len(DeadLetters(acker))
    assert {one.attempt for one in frame.collect()[1].failures} == {1}


def test_a_message_that_is_complete_after_all_has_no_dead_letter(tracked: MakeFrame, acker: Acker) -> None:
    once = RetryPolicy(max_attempts=1)
    assert tracked(3, retries=once).map(fail_thirds, SCHEMA).collect()[1].dead == 1
    assert len(DeadLetters(acker, spout="numbers")) == 1

    assert tracked(3, retries=once).collect()[1].completed == 3
    assert len(DeadLetters(acker, spout="numbers")) == 0


def test_the_driver_of_a_job_with_a_shuffle_reads_its_completions(
    tracked: MakeFrame, acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    real = tally.Tally.read

    def read(one: tally.Tally) -> None:
        real(one)
        counted.append(one.completed)

    monkeypatch.setattr(tally.Tally, "read", read)
    tracked(30).collect()

    assert max(counted) == 30
    for keys in acker.shards.keys:
        assert acker.shards.ask(0, "XLEN", keys.stream("completions", acker.spout_number("numbers"))) == 0


def test_broadcasts_are_freed(tracked: MakeFrame, spark: SparkSession) -> None:
    _run(tracked(3).map(fail_thirds, SCHEMA))
    files = Path(spark.sparkContext._temp_dir)
    before = len(list(files.iterdir()))
    _run(tracked(3).map(fail_thirds, SCHEMA))

    assert len(list(files.iterdir())) == before


def test_a_long_job_keeps_its_messages_alive(servers: Servers, namespace: str, spark: SparkSession) -> None:
    def slow(row: Row) -> Row:
        import time

        time.sleep(4)
        return row

    with Acker(servers.get("redis-7.0").url, namespace=namespace, timeout_ms=1000) as acker:
        frame = track(spark.range(2), acker=acker, spout="numbers", message_id="id")
        summary = frame.map(slow, "id long").sink(lambda batch: None)

    assert (summary.completed, summary.failed) == (2, 0)


def test_a_spout_that_is_in_use_is_refused(tracked: MakeFrame, acker: Acker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spout, "WAIT_S", 0.2)
    other = Lease(acker, "numbers")
    other.take(wait=False, stop=threading.Event())

    with pytest.raises(SpoutTaken, match="Spout 'numbers' is driven by"):
        _run(tracked(3))

    other.give_up()
    assert _run(tracked(3)).completed == 3


def test_a_store_that_lost_its_data_completes_nothing(tracked: MakeFrame, acker: Acker, servers: Servers) -> None:
    def lose(writer: Any) -> None:
        writer.format("noop").mode("overwrite").save()
        client = servers.client("redis-7.0")
        for key in client.scan_iter(f"acker:{{{acker.namespace}:*heads*"):
            client.delete(key)
        for key in client.scan_iter(f"acker:{{{acker.namespace}:*vals*"):
            client.delete(key)

    with pytest.raises(StoreLost, match="The store has lost roots of spout 'numbers' while the job ran"):
        tracked(10).write(lose)

    assert books(acker)[1] == 0
    assert {one.attempt for one in _run(tracked(10).map(fail_thirds, SCHEMA)).failures} == {1}


def test_a_store_that_lost_what_workers_noted_completes_nothing(
    tracked: MakeFrame, acker: Acker, servers: Servers
) -> None:
    def lose(writer: Any) -> None:
        writer.format("noop").mode("overwrite").save()
        client = servers.client("redis-7.0")
        for key in client.scan_iter(f"acker:{{{acker.namespace}:*rows:*"):
            client.delete(key)

    with pytest.raises(StoreLost, match="has lost what workers noted about rows that failed"):
        tracked(10).map(fail_thirds, SCHEMA).write(lose)

    assert books(acker) == (10, 0, 10, 0)


def test_an_empty_frame_has_nothing_to_do(tracked: MakeFrame) -> None:
    summary = _run(tracked(10, spout="none").where("false"))
    empty = _run(tracked(0))

    assert (summary.completed, empty.tracked, empty.completed) == (10, 0, 0)


def test_progress_is_shown_if_asked_for_and_wiped_at_the_end(
    tracked: MakeFrame, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(row: Row) -> Row:
        import time

        time.sleep(0.02)
        return fail_thirds(row)

    monkeypatch.setattr(watch, "_LOOK_EVERY_S", 0.05)
    _run(tracked(99, progress=True).map(slow, SCHEMA))
    shown = capsys.readouterr().err
    _run(tracked(9).map(slow, SCHEMA))

    assert re.search(r"numbers: (\[.*\] \d+%, )?[1-9]\d* completed, \d+ failed, .*/s, \d+ s", shown)
    assert shown.endswith("\r\033[K")
    assert capsys.readouterr().err == ""  # no terminal, and nothing was asked for


def test_the_summary_reads_well(tracked: MakeFrame) -> None:
    summary = _run(tracked(30, retries=AT_ONCE).map(fail_thirds, SCHEMA, name="thirds"))

    first, *lines = str(summary).splitlines()
    assert first.startswith("numbers: 30 messages in ")
    assert first.endswith(": 20 completed, 10 failed (0 of them dead)")
    assert lines[0].endswith("failed in thirds (attempt 1): ValueError: a third")
    assert lines[-1] == "  and 5 more in .failures"


def _run(frame: Any) -> Any:
    return frame.sink(lambda batch: None)
