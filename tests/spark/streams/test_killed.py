"""Queries that are killed and started again on another number of cores: the books are exact, nothing is lost, and what
was completed is not done again."""

import pytest

from redis_acker import Acker, DeadLetters, Inbox
from redis_acker.retries.book import RetryBook
from redis_acker.store.tracked_streams import TrackedStreams
from tests.spark.streams.feed import SPOUT, Feed
from tests.spark.streams.killed import BATCH_ROWS, Hold, Kind, kill_when_held, run_to_end
from tests.waiting import wait_until

pytestmark = pytest.mark.full

ROWS = 400


@pytest.fixture
def filled(feed: Feed) -> Feed:
    """Four files, which are one micro-batch: with one core a single partition, with four four."""
    for i in range(4):
        feed.put(f"{i}.json", range(100 * i, 100 * (i + 1)))
    return feed


def reconcile(acker: Acker, feed: Feed) -> None:
    """Every message has one completion, and the log of the sink has it once. Nothing is left behind."""
    assert feed.sunk() == dict.fromkeys(range(ROWS), 1)
    reconcile_books(acker)


def reconcile_books(acker: Acker) -> None:
    """Every message has one completion, and nothing is left behind."""
    [found] = [one for one in acker.stats().spouts if one.name == SPOUT]
    assert (found.completed, found.pending) == (ROWS, 0)
    assert RetryBook(acker, SPOUT).load() == {}
    assert len(DeadLetters(acker, spout=SPOUT)) == 0
    number = acker.spout_number(SPOUT)
    for part in ("", "retries"):
        assert not acker.shards.progress(number, part).exists()
        assert not acker.shards.done_keys(number, part).exists()
    for rows in (f"stream {number}", f"stream {number}:written"):
        assert not acker.shards.failed_rows(rows).exists()


def finish(acker: Acker, feed: Feed, *, cores: int, kind: Kind = "sink") -> None:
    """Lets the query run until nothing waits."""
    (feed.directory / "mended").touch()
    wait_until(lambda: run_to_end(acker, feed, cores=cores, kind=kind)["waiting"] == 0, 300)


def work_off(acker: Acker, feed: Feed) -> None:
    """What the next application does with the rows that were handed over."""
    inbox = Inbox(acker, name="next")
    inbox.ack([one for one in inbox.receive(feed.left()) if one is not None])


@pytest.mark.parametrize(("cores", "then"), [(4, 1), (1, 4)])
@pytest.mark.parametrize("kind", ["sink", "columns"])
def test_a_query_that_is_killed_in_a_micro_batch_goes_on_in_other_partitions(
    filled: Feed, acker: Acker, cores: int, then: int, kind: Kind
) -> None:
    kill_when_held(acker, filled, cores=cores, holds="in sink", kind=kind, processes=cores)
    done = sum(filled.sunk().values())
    assert done == cores * (2 * BATCH_ROWS - 1)

    finish(acker, filled, cores=then, kind=kind)
    reconcile(acker, filled)


def test_what_was_sunk_and_not_acked_is_completed_by_the_next_start(filled: Feed, acker: Acker) -> None:
    kill_when_held(acker, filled, cores=4, holds="before ack", processes=4)
    done = sum(filled.sunk().values())
    assert done == 4 * (3 * BATCH_ROWS - 1)

    finish(acker, filled, cores=1)
    reconcile(acker, filled)


def test_what_was_handed_over_before_the_query_was_killed_is_left_to_the_next_application(
    filled: Feed, acker: Acker
) -> None:
    """Each task has sent a portion on, and it is noted that its sink has returned."""
    (filled.directory / "mended").touch()
    kill_when_held(acker, filled, cores=4, holds="before ack", kind="leave", processes=4)
    assert len(filled.left()) == 4 * 3 * BATCH_ROWS

    found = run_to_end(acker, filled, cores=1, kind="leave")
    assert (found["completed"], len(filled.left())) == (0, ROWS)
    work_off(acker, filled)
    [spout] = [one for one in acker.stats().spouts if one.name == SPOUT]
    assert (spout.completed, spout.pending) == (ROWS, 0)


@pytest.mark.parametrize(
    ("kind", "holds"),
    [
        ("sink", "before record"),
        ("sink", "after record"),
        ("sink", "before commit"),
        ("columns", "before record"),
        ("shuffle", "in acks"),
        ("shuffle", "before record"),
        ("shuffle", "before commit"),
    ],
)
def test_a_micro_batch_that_is_done_and_not_committed_by_spark_does_nothing_again(
    filled: Feed, acker: Acker, holds: Hold, kind: Kind
) -> None:
    kill_when_held(acker, filled, cores=4, holds=holds, kind=kind)
    assert sum(filled.sunk().values()) == ROWS - 4
    record = TrackedStreams(acker).get(SPOUT)
    assert record is not None
    assert record.batch == (-1 if holds in ("in acks", "before record") else 0)

    finish(acker, filled, cores=1, kind=kind)
    reconcile(acker, filled)


@pytest.mark.parametrize("holds", ["in acks", "after a part"])
def test_what_is_written_is_not_written_again(filled: Feed, acker: Acker, holds: Hold) -> None:
    """Also parts of a micro-batch, whose other parts are done when nothing kills its workers any more."""
    kill_when_held(acker, filled, cores=4, holds=holds, kind="write")
    done = filled.written()
    assert 0 < done.total() == len(done) <= ROWS - 4

    finish(acker, filled, cores=1, kind="write")
    assert filled.written() == dict.fromkeys(range(ROWS), 1)
    reconcile_books(acker)


@pytest.mark.parametrize("holds", ["waiting", "in retry"])
@pytest.mark.parametrize("kind", ["sink", "columns", "shuffle"])
def test_what_waits_for_another_attempt_survives(filled: Feed, acker: Acker, holds: Hold, kind: Kind) -> None:
    """Also what is just being tried again."""
    kill_when_held(acker, filled, cores=2, holds=holds, kind=kind)
    waiting = RetryBook(acker, SPOUT).load()
    assert set(waiting) == {"m7", "m107", "m207", "m307"}
    assert all(retry.payload == [{"id": one, "number": int(str(one)[1:])}] for one, retry in waiting.items())

    finish(acker, filled, cores=1, kind=kind)
    reconcile(acker, filled)


@pytest.mark.parametrize("is_looked_after", [False, True])
def test_what_failed_in_a_portion_that_is_done_again_completes_once(
    filled: Feed, acker: Acker, is_looked_after: bool
) -> None:
    """It is in the retry book, and among the rows of the micro-batch that comes again: also if the query that is killed
    has had the time to try it again before."""

    def look_again() -> None:
        (filled.directory / "mended").touch()
        looks = len(list(filled.directory.glob("looked *")))
        wait_until(lambda: len(list(filled.directory.glob("looked *"))) >= looks + 2, 120)

    meanwhile = look_again if is_looked_after else lambda: None
    # One core is left for retries.
    kill_when_held(acker, filled, cores=5, holds="before note", processes=4, meanwhile=meanwhile)

    finish(acker, filled, cores=1)
    reconcile_books(acker)


@pytest.mark.parametrize("holds", ["before note", "before ack"])
def test_what_the_next_application_has_done_completes_once(filled: Feed, acker: Acker, holds: Hold) -> None:
    """The first is killed when rows have left, and the second works on while it is away."""
    (filled.directory / "mended").touch()
    kill_when_held(acker, filled, cores=4, holds=holds, kind="leave", processes=4)
    assert filled.left()
    work_off(acker, filled)

    def goes_on() -> bool:
        run_to_end(acker, filled, cores=1, kind="leave")
        work_off(acker, filled)
        return not any(acker.pending(spout=SPOUT))

    wait_until(goes_on, 300)
    run_to_end(acker, filled, cores=1, kind="leave")
    reconcile_books(acker)


def test_a_query_that_is_stopped_in_a_micro_batch_ends_without_an_error_of_spark(filled: Feed, acker: Acker) -> None:
    run_to_end(acker, filled, cores=1, holds="to be stopped")
    said = (filled.directory / "log").read_text()
    assert "StackOverflowError" not in said
    assert "terminated with error" not in said

    finish(acker, filled, cores=1)
    reconcile(acker, filled)
