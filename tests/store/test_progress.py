"""The portions of a run: what a task that begins one is told, whatever other attempts have made of it."""

import pytest

from redis_acker import new_edges
from redis_acker.errors import TooLate
from redis_acker.store.run_records import BEGUN, PENDING, SUNK, PartitionProgress, Place, field_of
from tests.lua.ledger import SPOUT, TIMEOUT_MS
from tests.store.portions import HALF_MS, PARTITION, Run, after, roots, sum_of

# -- one attempt at a partition ------------------------------------------------------------------------------------


def test_a_portion_that_nobody_has_begun_is_new_and_has_roots_of_its_own(run: Run) -> None:
    first, other = run.next(0, 20), run.next(0, 20, field_of(0, 4))
    assert (first.state, first.rows, first.sum, first.stage) == ("new", 20, sum_of(20), BEGUN)
    assert len(set(roots(run, first)) | set(roots(run, other))) == 40
    assert not set(roots(run, first)) & set(run.ledger.acker.allocate(SPOUT, 20).tolist())


def test_begun_rows_are_in_work_and_those_before_are_done_when_the_next_are_begun(run: Run) -> None:
    first = run.next(0, 20)
    assert run.reach(after(0), first, PENDING) == "kept"
    now_ms = run.ledger.clock.now_ms
    assert run.partition() == PartitionProgress(PARTITION, 0, 0, 20, first.first, PENDING, now_ms, 0, sum_of(20), 0, 0)
    assert run.reach(after(0), first, SUNK) == "kept"
    assert (run.partition().done, run.partition().rows) == (0, 20)
    run.wait(5)
    second = run.next(20, 7)
    assert (second.state, second.rows, second.sum) == ("new", 7, sum_of(27))
    assert not set(roots(run, first)) & set(roots(run, second))
    now_ms = run.ledger.clock.now_ms
    assert run.partition() == PartitionProgress(PARTITION, 20, 0, 7, second.first, BEGUN, now_ms, 0, sum_of(27), 0, 0)


def test_the_end_of_the_rows_ends_the_last_portion_and_begins_none(run: Run) -> None:
    run.reach(after(0), run.next(0, 20), SUNK)
    end = run.next(20, 0)
    assert (end.state, end.rows, end.sum) == ("done", 20, sum_of(20))
    assert run.reach(after(20), end, SUNK) == "gone", "there is none"
    found = run.partition()
    assert (found.done, found.rows, found.first, found.has_ended) == (20, 0, 0, True)


def test_an_end_that_came_too_early_is_none_when_more_rows_follow(run: Run) -> None:
    assert run.next(0, 0).state == "done"
    portion = run.next(0, 20)
    assert (portion.state, portion.stage, run.partition().has_ended) == ("new", BEGUN, False)
    assert run.reach(after(0), portion, PENDING) == "kept"
    run.leave(PARTITION)
    assert not run.partition().has_ended


def test_a_partition_without_rows_is_seen_and_has_nothing_done(run: Run) -> None:
    assert run.next(0, 0).state == "done"
    found = run.partition()
    assert (found.done, found.rows, found.touched_ms, found.has_ended) == (0, 0, 0, True)


def test_failed_rows_are_summed_over_portions_and_counted_once_each(run: Run) -> None:
    first = run.next(0, 20)
    run.reach(after(0), first, PENDING)
    run.reach(after(0), first, SUNK, failed=3)
    run.reach(after(0), first, SUNK, failed=3)
    assert run.done_and_failed() == (0, 0)
    second = run.next(20, 10)
    assert run.done_and_failed() == (20, 3)
    run.reach(after(20), second, SUNK, failed=2)
    third = run.next(30, 10)
    assert run.done_and_failed() == (30, 5)
    run.reach(after(30), third, SUNK)
    run.next(40, 0)
    assert run.done_and_failed() == (40, 5)


def test_a_stage_never_goes_back(run: Run) -> None:
    portion = run.next(0, 20)
    run.reach(after(0), portion, SUNK, failed=4)
    assert run.reach(after(0), portion, PENDING) == "kept", "as the thread does that keeps the roots alive"
    assert run.next(0, 20).stage == SUNK
    run.next(20, 1)
    assert run.done_and_failed() == (20, 4)


def test_an_init_is_in_time_for_half_a_timeout_after_the_begin(run: Run) -> None:
    acker, portions = run.ledger.acker, [run.next(0, 8), run.next(0, 8, field_of(0, 4))]
    run.wait(HALF_MS)
    for number, portion in enumerate(portions):
        run.wait(number)
        found, edges = run.roots_of(portion.first, portion.rows), new_edges(8)
        if number:
            with pytest.raises(TooLate):
                acker.init(found, edges, until_ms=portion.until_ms)
        else:
            assert acker.init(found, edges, until_ms=portion.until_ms).initialised == 8


# -- another attempt -----------------------------------------------------------------------------------------------


def test_another_attempt_gets_the_same_rows_and_roots_whatever_cut_it_proposes(run: Run) -> None:
    first = run.next(0, 20)
    for rows in (20, 7, 33):
        again = run.next(0, rows)
        assert (again.state, again.rows, again.sum, again.first) == ("again", 20, sum_of(20), first.first)
    run.reach(after(0), first, PENDING)
    assert run.next(0, 20).stage == PENDING


def test_another_attempt_ends_a_portion_for_both(run: Run) -> None:
    first, again = run.next(0, 20), run.next(0, 20)
    run.reach(after(0), again, SUNK, failed=1)
    run.next(20, 5)
    assert run.reach(after(0), first, SUNK, failed=1) == "done"
    assert run.done_and_failed() == (20, 1)


def test_another_attempt_passes_over_what_is_done(run: Run) -> None:
    run.reach(after(0), run.next(0, 20), SUNK)
    second = run.next(20, 10)
    found = run.next(0, 20)
    assert (found.state, found.rows, found.sum) == ("done", 20, sum_of(20))
    assert not run.partition().has_ended
    again = run.next(20, 10)
    assert (again.state, again.first) == ("again", second.first)


def test_a_sunk_portion_is_not_done_while_an_attempt_may_still_ack_it(run: Run) -> None:
    first = run.next(0, 20)
    run.reach(after(0), first, SUNK)
    run.wait(HALF_MS - 1)
    again = run.next(0, 20)
    assert (again.state, again.first, again.stage) == ("again", first.first, SUNK)


def test_a_sunk_portion_that_nobody_has_been_at_for_half_a_timeout_is_late(run: Run) -> None:
    """Its roots may be over, so they are not made pending again, but acked if they are not."""
    first = run.next(0, 20)
    run.reach(after(0), first, SUNK, failed=2)
    run.wait(HALF_MS // 2)
    assert run.next(0, 20).state == "again"
    assert run.reach(after(0), first, PENDING) == "kept"  # which does not restart its time
    run.wait(HALF_MS // 2)
    found = run.next(0, 7)
    assert (found.state, found.rows, found.sum, found.stage) == ("late", 20, sum_of(20), SUNK)
    assert roots(run, found) == roots(run, first)
    run.next(20, 0)
    assert run.done_and_failed() == (20, 2)
    assert run.reach(after(0), first, SUNK) == "done"


# -- roots that are over soon --------------------------------------------------------------------------------------


def test_rows_that_nobody_has_been_at_for_half_a_timeout_get_other_roots(run: Run) -> None:
    first = run.next(0, 20)
    run.reach(after(0), first, PENDING)
    run.wait(HALF_MS)
    anew = run.next(0, 12)
    assert (anew.state, anew.rows, anew.sum, anew.stage) == ("anew", 12, sum_of(12), BEGUN)
    assert not set(roots(run, anew)) & set(roots(run, first))
    assert run.reach(after(0), first, SUNK, failed=9) == "gone"
    assert run.reach(after(0), anew, SUNK) == "kept"
    run.next(12, 1)
    assert run.done_and_failed() == (12, 0)


def test_a_touch_keeps_the_roots_for_another_half_of_the_timeout(run: Run) -> None:
    first = run.next(0, 20)
    for _ in range(4):
        run.wait(HALF_MS - 1)
        assert run.reach(after(0), first, PENDING) == "kept"
    run.wait(HALF_MS - 1)
    assert run.next(0, 20).first == first.first


def test_the_time_of_a_portion_begins_with_it(run: Run) -> None:
    run.wait(10 * TIMEOUT_MS)
    first = run.next(0, 20)
    assert run.next(0, 20).first == first.first


# -- rows that do not fit ------------------------------------------------------------------------------------------


def test_other_rows_before_the_place_are_noticed(run: Run) -> None:
    run.reach(after(0), run.next(0, 20), SUNK)
    run.next(20, 10)
    assert run.begin(Place(PARTITION, 20, sum_of(20) + 1), 10, sum_of(30)).state == "other"
    assert run.next(20, 10).state == "again"


def test_fewer_rows_than_another_attempt_has_seen_are_noticed(run: Run) -> None:
    first = run.next(0, 20)
    for _ in range(2):
        assert run.next(0, 0).state == "other"
        run.wait(HALF_MS // 2)
    assert run.partition().rows == 20
    assert run.reach(after(0), first, PENDING) == "kept"


def test_fewer_rows_than_another_attempt_has_done_are_noticed(run: Run) -> None:
    run.reach(after(0), run.next(0, 20), SUNK)
    run.next(20, 5)
    assert run.next(0, 0).state == "other"
    assert run.partition().done == 20


def test_a_portion_that_nobody_has_been_at_for_a_timeout_needs_other_roots(run: Run) -> None:
    """Whoever was cut off is told so, and that the old roots are to be failed, until it is at the new ones."""
    first = run.next(0, 20)
    run.reach(after(0), first, PENDING)
    run.wait(2 * HALF_MS)
    assert run.reach(after(0), first, SUNK) == "gone"
    anew, again = run.next(0, 20), run.next(0, 20)
    assert (anew.state, again.state) == ("anew", "again")
    assert anew.left.tolist() == again.left.tolist() == roots(run, first)
    run.reach(after(0), again, PENDING)
    assert len(run.next(0, 20).left) == 0


def test_a_store_that_has_lost_rows_says_how_far_it_knows(run: Run) -> None:
    run.reach(after(0), run.next(0, 20), SUNK)
    second = run.next(20, 10)
    lost = run.next(30, 10)  # the portion before has not been sunk, as the store knows it
    assert (lost.state, lost.rows, lost.sum) == ("lost", 20, sum_of(20))
    assert run.reach(after(30), lost, SUNK) == run.reach(after(30), second, SUNK) == "gone"
    assert run.next(1, 1, field_of(0, 4)).state == "lost"
    assert run.partition().rows == 10, "nothing was begun"


def test_a_run_that_was_replaced_is_gone_for_its_workers(run: Run) -> None:
    portion = run.next(0, 20)
    other = Run(run.ledger, "other")
    assert run.next(20, 5).state == run.next(0, 20).state == "gone"
    assert run.reach(after(0), portion, SUNK) == "gone"
    assert run.leave(PARTITION) is None
    assert other.read()[1] == []
    begun = other.next(0, 20)
    assert run.leave(PARTITION) is None
    assert (begun.state, other.reach(after(0), begun, SUNK)) == ("new", "kept")
    other.next(20, 5)
    assert run.reach(after(0), portion, SUNK) == "gone", "not done: another run has done it"


def test_a_run_that_was_dropped_is_gone_for_its_workers_and_leaves_nothing(run: Run) -> None:
    portion = run.next(0, 20)
    run.drop()
    assert run.next(20, 5).state == "gone"
    assert run.reach(after(0), portion, SUNK) == "gone"
    assert run.read() == (None, [])


# -- letting go ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [BEGUN, PENDING])
def test_a_portion_that_is_left_gives_its_roots_back_and_its_rows_get_others(run: Run, stage: int) -> None:
    run.reach(after(0), run.next(0, 20), SUNK, failed=1)
    second = run.next(20, 10)
    run.reach(after(20), second, stage)
    left = run.leave(PARTITION)
    assert left is not None
    assert left.tolist() == roots(run, second)
    assert run.leave(PARTITION) is None
    assert (run.partition().done, run.partition().failed, run.partition().rows) == (20, 1, 0)
    assert run.reach(after(20), second, SUNK) == "gone"
    anew = run.next(20, 4)
    assert (anew.state, anew.stage) == ("new", BEGUN)
    assert not set(roots(run, anew)) & set(roots(run, second))


def test_a_sunk_portion_stays_when_it_is_left(run: Run) -> None:
    first = run.next(0, 20)
    run.reach(after(0), first, SUNK, failed=2)
    assert run.leave(PARTITION) is None
    again = run.next(0, 20)
    assert (again.state, again.first, again.stage) == ("again", first.first, SUNK)
    run.next(20, 1)
    assert run.done_and_failed() == (20, 2)


def test_a_partition_that_was_never_begun_can_be_left(run: Run) -> None:
    assert run.leave(PARTITION) is None
    assert run.read()[1] == []
