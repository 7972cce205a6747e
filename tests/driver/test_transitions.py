"""The table of states and transitions, and the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from redis_acker import Message
from redis_acker.driver.life import TRANSITIONS, Messages, State
from redis_acker.retries.book import Retry

DESIGN_PAGE = Path(__file__).parents[2] / "docs" / "design.md"


def test_a_transition_that_is_not_in_the_table_is_refused_and_changes_nothing() -> None:
    messages = Messages()
    life = messages.life_of(1)
    messages.move(life, State.READY)
    with pytest.raises(AssertionError, match=r"Message 1 cannot go from State.READY to State.TOLD"):
        messages.move(life, State.TOLD)
    assert [one for state in State for one in messages.all(state)] == [life]
    assert life.state is State.READY


def test_every_state_can_be_reached_and_left() -> None:
    assert TRANSITIONS.keys() == {None, *State}
    assert {to for others in TRANSITIONS.values() for to in others} == {None, *State}


ALL_AT_ONCE = [
    (came_from, to)
    for came_from, others in TRANSITIONS.items()
    for to in others
    if came_from not in (None, to) and State.WAITING not in (came_from, to)
]


@pytest.mark.parametrize(("came_from", "to"), ALL_AT_ONCE)
def test_messages_that_move_all_at_once_are_where_they_would_be_one_by_one(came_from: State, to: State | None) -> None:
    ends = []
    for at_once in (True, False):
        live_roots = {99}
        messages = Messages(live_roots)
        for number in (1, 2, 3):
            life = messages.life_of(number)
            life.root, life.state = number, came_from
            messages._lives[number] = messages._in[came_from][number] = life
            live_roots |= {number} if came_from is State.PENDING else set()
        if at_once:
            messages.move_all(came_from, to)
        else:
            for life in list(messages.all(came_from)):
                messages.move(life, to)
        found = {state: [(life.id, life.state) for life in messages.all(state)] for state in State}
        ends.append((found, sorted(messages._lives), live_roots))
    assert ends[0] == ends[1]


def test_messages_cannot_move_all_at_once_where_one_could_not() -> None:
    with pytest.raises(AssertionError, match=r"from State.READY to State.TOLD all at once"):
        Messages().move_all(State.READY, State.TOLD)


def test_pauses_end_in_the_order_of_their_times_and_only_for_those_who_still_wait() -> None:
    messages = Messages()
    for message_id, due_ms in enumerate([30, 10, 20, 10]):
        life = messages.life_of(message_id)
        life.retry = Retry(due_ms=due_ms)
        messages.move(life, State.WAITING)
    messages.move(messages.life_of(2), State.ASKED)
    rested = []
    while life_or_none := messages.first_rested(25):
        rested.append(life_or_none.id)
        messages.move(life_or_none, State.ASKED)
    assert rested == [1, 3]
    assert messages.first_rested(29) is None
    assert messages.first_rested(30) is messages.life_of(0)


def test_messages_that_are_handed_out_before_their_time_are_counted_while_they_are_held() -> None:
    messages = Messages()
    life = messages.life_of(1)
    life.retry = Retry()
    messages.move(life, State.FAILED)
    for _ in range(2):
        messages.keep(life, Message([], id=1))
    messages.move(life, State.WAITING)
    assert messages.held_back == 1
    messages.move(life, State.READY)
    assert messages.held_back == 0


# -- the page --------------------------------------------------------------------------------------------------------


def rendered() -> str:
    """The table as docs/design.md shows it."""
    lines = []
    for state, others in TRANSITIONS.items():
        lines.append(f"{state.name:9}  {state.value}" if state else "not known to the driver")
        lines += [f"    -> {to.name if to else 'not known':9}  {event}" for to, event in others.items()]
    return "\n".join(lines)


def test_the_design_page_shows_the_table() -> None:
    section = DESIGN_PAGE.read_text().partition("## The life of a message\n")[2].partition("\n## ")[0]
    assert section.partition("```text\n")[2].partition("\n```")[0] == rendered()
