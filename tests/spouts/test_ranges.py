"""What is finished of a file, as ranges of bytes."""

from redis_acker.spouts.checkpoint import Ranges


def test_a_position_where_two_ranges_were_joined_is_in_the_range() -> None:
    """Where a file is read on: the line before it is finished only after it was handed out."""
    finished = Ranges([(0, 10), (20, 30)])
    assert finished.end_of(20) == 30
    finished.add(10, 20)
    assert finished.end_of(20) == 30
    assert finished.end_of(30) is None
    assert finished.to_list() == [(0, 30)]
    assert (29 in finished, 30 in finished) == (True, False)


def test_ranges_that_touch_on_one_side_become_one() -> None:
    finished = Ranges([(10, 20)])
    finished.add(0, 10)
    finished.add(20, 25)
    finished.add(40, 50)
    assert finished.to_list() == [(0, 25), (40, 50)]
    assert (finished.end_of(3), finished.end_of(25), finished.end_of(45)) == (25, None, 50)
