"""Jobs with a shuffle: what workers make pending, however often they are tried, and what the driver makes of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from redis_acker import Acker, Rotator
from redis_acker.retries.book import RetryBook
from redis_acker.store.message_ids import MessageId
from redis_acker.store.streams import Cause
from spark_integration.errors import OtherRows, RunReplaced
from spark_integration.runs.pending import FindRoots
from spark_integration.runs.shuffled import MessagesInRun
from spark_integration.workers import StoreAddress
from tests.backends import Servers
from tests.clock import Clock
from tests.spark.frames.books import books
from tests.spark.frames.partitions import PORTION_ROWS, ROWS, SPOUT, Job, batch_of, batches_of, tasks_here
from tests.spark.frames.tasks import Died, Wire, key_of

TIMEOUT_MS = 30_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def job(servers: Servers, namespace: str, clock: Clock) -> Iterator[Job]:
    opened: list[Acker] = []
    url = servers.get("redis-7.0").url

    def open_acker() -> Acker:
        opened.append(Acker(url, namespace=namespace, shards=2, block_size=8, timeout_ms=TIMEOUT_MS, clock=clock))
        return opened[-1]

    with tasks_here(open_acker):
        yield Job(open_acker)
    for one in opened:
        one.close()


@contextmanager
def dying(call: int, when: str) -> Iterator[None]:
    """Attempts die at a call of theirs."""
    real = StoreAddress.acker

    def acker(address: StoreAddress) -> Acker:
        opened = real(address)
        Wire(opened.shards).dies_at = call, when
        return opened

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreAddress, "acker", acker)
        yield


def cause(error: str = "ValueError: bad") -> Cause:
    return Cause("step", error)


def keys_of(*numbers: int) -> Any:
    return np.array(list(map(key_of, numbers)), dtype=np.int64)


def end(run: MessagesInRun) -> tuple[int, int]:
    """Completes a run. Returns how many messages are complete, and how many failed."""
    run.complete("token")
    summary = run.summary(1.0)
    run.close()
    return summary.completed, summary.failed


def attempts(job: Job) -> dict[MessageId, int]:
    """The failed attempts at messages that the store knows."""
    return {one: retry.attempt for one, retry in RetryBook(job.acker, SPOUT).load().items()}


def test_every_message_is_pending_once_and_completed(job: Job) -> None:
    run = job.messages(batches_of(10, 50, 5), [], [batch_of(range(65, 100))])
    run.take_lease()
    run.make_pending()

    assert (len(run), books(job.acker)) == (ROWS, (ROWS, 0, 0, ROWS))
    assert end(run) == (ROWS, 0)
    assert books(job.acker) == (ROWS, ROWS, 0, 0)


def test_just_the_messages_of_some_keys_fail(job: Job) -> None:
    run = job.messages(batches_of(10, 50, 5), [batch_of(range(65, 100))])
    run.take_lease()
    run.make_pending()

    found = run.fail_keys({cause("first"): keys_of(0, 64, 1000), cause("second"): keys_of(65, 99)})

    assert sorted(found) == sorted(keys_of(0, 64, 65, 99))
    assert end(run) == (ROWS - 4, 4)
    assert attempts(job) == {0: 1, 64: 1, 65: 1, 99: 1}


@pytest.mark.parametrize("when", ["before", "half", "after"])
def test_an_attempt_that_dies_at_any_call_leaves_nothing_wrong(job: Job, when: str) -> None:
    """Another one follows, while the first may live on in the store."""
    died = 0
    for call in range(1000):
        run = job.begin(f"run {call}")
        try:
            with dying(call, when):
                job.attempt(batches_of(10, 50, 40), f"run {call}")
        except Died:
            died += 1
        assert job.attempt(batches_of(50, 50), f"run {call}") == ROWS  # in other batches they are the same rows
        job.end_pass(run)
        assert books(job.acker)[3] == ROWS, call
        assert end(run) == (ROWS, 0), call
        if died <= call:
            break
    assert died == call >= 10


def test_an_input_that_was_cut_short_does_no_harm(job: Job) -> None:
    run = job.begin()
    assert job.attempt(batches_of(ROWS)) == ROWS
    with pytest.raises(OtherRows, match="Partition 0 has different rows after row 96"):
        job.attempt(batches_of(98))
    job.end_pass(run)
    assert end(run) == (ROWS, 0)


def test_an_attempt_follows_the_cuts_of_one_whose_input_ended_early(job: Job) -> None:
    run = job.begin()
    assert job.attempt(batches_of(30)) == 30
    assert job.attempt(batches_of(ROWS)) == ROWS

    job.end_pass(run)
    assert [one.rows for one in run._portions] == [24, 6, 24, 24, 22]
    assert books(job.acker) == (ROWS, 0, 0, ROWS)
    run.fail_keys({cause(): keys_of(29, 30)})
    assert end(run) == (ROWS - 2, 2)
    assert attempts(job) == {29: 1, 30: 1}


def test_portions_that_a_slow_attempt_cut_in_another_way_are_left_out(job: Job, clock: Clock) -> None:
    """The third attempt comes so late that it gets new roots, and cuts its rows as if nobody had been there."""
    run = job.begin()
    job.attempt(batches_of(30))
    job.attempt(batches_of(ROWS))
    clock.advance(TIMEOUT_MS // 2)
    job.attempt(batches_of(ROWS))

    job.end_pass(run)

    assert [one.rows for one in run._portions] == [24, 24, 24, 24, 4]
    assert books(job.acker)[3] == ROWS
    assert end(run) == (ROWS, 0)
    assert books(job.acker)[1] == ROWS
    assert not RetryBook(job.acker, SPOUT).load()  # what was left out is no attempt


def test_another_attempt_makes_nothing_pending_that_is(job: Job) -> None:
    job.begin()
    job.attempt(batches_of(ROWS))
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(Acker, "init")
        assert job.attempt(batches_of(ROWS)) == ROWS


def test_an_attempt_that_lives_on_when_the_pass_is_over_changes_nothing(job: Job, clock: Clock) -> None:
    run = job.messages(batches_of(ROWS))
    run.take_lease()
    run.make_pending()
    clock.advance(TIMEOUT_MS // 2)  # so late that portions would get new roots

    with pytest.raises(RunReplaced):
        job.attempt(batches_of(ROWS))

    assert books(job.acker) == (ROWS, 0, 0, ROWS)
    assert end(run) == (ROWS, 0)


@pytest.mark.parametrize(
    "again",
    [[*range(99), 200], [*range(98), 99, 98], [*range(99)], [*range(101)]],
    ids=["another row", "another order", "a row less", "a row more"],
)
def test_other_rows_are_noticed(job: Job, again: list[int]) -> None:
    run = job.messages(batches_of(ROWS))
    run.take_lease()
    run.make_pending()
    finder = FindRoots(job.acker.spout_number(SPOUT), 8, tuple(run._portions), keys_of(3))

    with pytest.raises(OtherRows, match="Partition 0 has different rows after row"):
        list(finder(iter([batch_of(again)])))
    end(run)


def test_fewer_rows_at_a_second_attempt_are_noticed_by_their_number(job: Job) -> None:
    """The first attempt made more of them pending; the second, whose word counts, ended between two portions."""
    run = job.begin()
    assert job.attempt([batch_of(range(3 * PORTION_ROWS))]) == 3 * PORTION_ROWS
    assert job.attempt([batch_of(range(2 * PORTION_ROWS))]) == 2 * PORTION_ROWS

    with pytest.raises(OtherRows, match="Partition 0 had 72 rows at the first reading and 48 at another"):
        job.end_pass(run, 2 * PORTION_ROWS)
    run.fail("it is over")
    run.close()
    assert books(job.acker)[3] == 0


@pytest.mark.parametrize("when", ["before", "half", "after"])
def test_a_driver_that_dies_at_any_call_is_followed_by_one_that_ends_everything(job: Job, when: str) -> None:
    """No root is left, and no message has an attempt too many: its run failed, and not it."""
    died = False
    for call in range(1000):
        acker = job.open_acker()
        wire = Wire(acker.shards)
        dead = job.messages(batches_of(30), run=f"dead {call}", acker=acker)
        wire.calls.clear()
        wire.dies_at = call, when
        try:
            dead.take_lease()
            dead.make_pending()
            dead.fail_keys({cause(): keys_of(7)})
            dead.complete("token")
            dead.summary(1.0)
            died = False
        except Died:
            died = True
        job.end_lease()

        run = job.messages(batches_of(30), run=f"next {call}")
        run.take_lease()
        assert books(job.acker)[3] == 0, (call, wire.calls)
        assert RetryBook(job.acker, SPOUT).load().keys() <= {7}, (call, wire.calls)
        run.make_pending()
        assert end(run) == (30, 0)
        assert not RetryBook(job.acker, SPOUT).load()  # completions forget the attempts
        if not died:
            break
    assert call >= 15


def test_a_driver_that_dies_while_it_ends_a_dead_run_is_followed_by_another(job: Job) -> None:
    for call in range(1000):
        job.end_lease()
        dead = job.messages(batches_of(30), run=f"dead {call}")
        dead.take_lease()
        dead.make_pending()
        job.end_lease()
        second = job.open_acker()
        wire = Wire(second.shards)
        wire.dies_at = call, "after"
        try:
            job.messages(run=f"second {call}", acker=second).take_lease()
        except Died:
            job.end_lease()
            third = job.messages(run=f"third {call}")
            third.take_lease()
            assert books(job.acker)[3] == 0, (call, wire.calls)
            third.close()
        else:
            break
    assert call >= 6


def test_roots_that_a_portion_had_before_are_failed_by_the_next_driver(job: Job, clock: Clock) -> None:
    """A worker has given its first portion new roots, and dies before it fails the old ones; so does the driver."""
    job.begin()
    job.attempt(batches_of(30))
    clock.advance(TIMEOUT_MS // 2)
    with dying(0, "after"), pytest.raises(Died):
        job.attempt(batches_of(30))
    job.end_lease()

    job.messages(run="next").take_lease()

    assert books(job.acker) == (30, 0, 30, 0)
    assert attempts(job) == {}


def test_what_timed_out_before_a_failed_run_came_to_fail_it_is_no_attempt(job: Job, clock: Clock) -> None:
    run = job.messages(batches_of(30))
    run.take_lease()
    run.make_pending()
    run.fail_keys({cause(): keys_of(7)})
    for _ in range(4):
        clock.advance(TIMEOUT_MS // 2)
        Rotator(job.acker).once()

    run.fail("the job was cancelled")
    run.close()

    assert books(job.acker) == (30, 0, 30, 0)
    assert attempts(job) == {7: 1}


def test_what_timed_out_after_the_driver_had_died_is_no_attempt(job: Job, clock: Clock) -> None:
    dead = job.messages(batches_of(30), run="dead")
    dead.take_lease()
    dead.make_pending()
    dead.fail_keys({cause(): keys_of(7)})
    for _ in range(4):
        clock.advance(TIMEOUT_MS // 2)
        Rotator(job.acker).once()
    assert books(job.acker) == (30, 0, 30, 0)
    job.end_lease()

    run = job.messages(batches_of(30), run="next")
    run.take_lease()

    assert attempts(job) == {7: 1}
    run.close()
