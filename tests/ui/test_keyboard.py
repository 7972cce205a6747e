"""Everything on the page can be done with the keyboard alone, and a reader of screens is told what has it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from redis_acker import Acker, new_edges
from redis_acker.retries.book import RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.store.spout_states import SpoutStates
from tests.ui.serving import TOKEN
from tests.ui.watched import CONTRAST, Open, bury
from tests.waiting import wait_until

pytestmark = pytest.mark.full

MOST_KEYS = 60
"""Presses of Tab that go once round the page."""


def tab_to(page: Page, target: Locator) -> None:
    """Presses Tab until something has the keyboard."""
    for _ in range(MOST_KEYS):
        if target.count() == 1 and target.evaluate("it => it === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {target}")


def unlock(page: Page) -> None:
    tab_to(page, page.get_by_role("button", name="Allow actions"))
    page.keyboard.press("Enter")
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Actions are allowed")).to_be_focused()


def act(page: Page, button: Locator, question: str, verb: str) -> None:
    """Refuses once, then agrees. The question is asked under its own text, and Cancel has the keyboard first."""
    tab_to(page, button)
    dialog = page.get_by_role("alertdialog", name=question)
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()
    page.keyboard.press("Space")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(dialog.get_by_role("button", name=verb)).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()


def test_dead_letters_are_replayed_and_purged_by_keyboard_alone(open_page: Open, acker: Acker) -> None:
    bury(acker, "order-1", 'order "2"')
    page = open_page("--allow-actions", "--token", TOKEN).page
    letter = page.get_by_role("button", name="order-1: failed in billing at attempt 2: no such customer")
    expect(letter).to_be_visible()
    unlock(page)
    tab_to(page, letter)
    page.keyboard.press("Enter")
    act(page, page.get_by_role("button", name="Replay"), "Replay message order-1?", "Replay")
    expect(page.get_by_text("is given back to its driver")).to_be_visible()
    assert [request.message_id for request in RetryBook(acker, "orders").requests()] == ["order-1"]
    dead = page.get_by_role("region", name="Dead letters")
    expect(dead.get_by_role("combobox", name="Spout")).to_be_focused()
    tab_to(page, page.get_by_role("button", name='order "2": failed'))
    page.keyboard.press("Enter")
    act(page, page.get_by_role("button", name="Purge"), 'Delete the dead letter of order "2" for good?', "Purge")
    expect(page.get_by_text("is purged")).to_be_visible()
    assert len(DeadLetters(acker)) == 0


def test_a_root_is_extended_and_failed_by_keyboard_alone(open_page: Open, acker: Acker) -> None:
    root = acker.allocate("orders", 1)
    acker.init(root, new_edges(1))
    page = open_page("--allow-actions", "--token", TOKEN).page
    unlock(page)
    field = page.get_by_label("Root", exact=True)
    tab_to(page, field)
    page.keyboard.type(hex(int(root[0])))
    page.keyboard.press("Enter")
    for verb, question, answer in (
        ("Extend", "Give root", "has its whole timeout again"),
        ("Fail", "Fail root", "has failed"),
    ):
        button = page.get_by_role("button", name=verb, exact=True)
        expect(button).to_be_visible()
        act(page, button, question, verb)
        expect(page.get_by_text(answer)).to_be_visible()
        expect(field).to_be_focused()
    assert acker.inspect(int(root[0])).state == "finished"


def test_a_spout_is_chosen_and_paused_by_keyboard_alone(open_page: Open, acker: Acker) -> None:
    for name in ("orders", "returns"):
        acker.init(acker.allocate(name, 1), new_edges(1))
    page = open_page("--allow-actions", "--token", TOKEN).page
    unlock(page)
    pauses = page.locator('[data-part="pauses"]')
    spout = pauses.get_by_role("combobox", name="Spout")
    expect(spout).to_have_value("orders")
    tab_to(page, spout)
    page.keyboard.press("Enter")
    expect(page.get_by_role("option", name="returns")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(spout).to_have_value("returns")
    states, number = SpoutStates(acker.shards), acker.spout_number("returns")
    act(page, pauses.get_by_role("button", name="Pause"), "Pause spout returns?", "Pause")
    wait_until(lambda: states.is_paused(number), 30)
    expect(pauses.get_by_role("button", name="Resume")).to_be_focused()
    act(page, pauses.get_by_role("button", name="Resume"), "Resume spout returns?", "Resume")
    wait_until(lambda: not states.is_paused(number), 30)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_has_the_keyboard_and_what_buttons_and_fields_say_can_be_seen(
    open_page: Open, acker: Acker, scheme: str
) -> None:
    bury(acker, "order-1")
    page = open_page("--allow-actions", "--token", TOKEN, color_scheme=scheme).page
    expect(page.get_by_role("button", name="order-1: failed")).to_be_visible()
    buttons = page.get_by_role("button").all()
    assert len(buttons) > 5
    for button in buttons:
        if button.is_visible() and button.is_enabled():
            button.focus()
            page.keyboard.press("Shift")  # from now on the browser shows where the keyboard is
            assert button.evaluate("it => getComputedStyle(it).outlineStyle") == "solid"
            assert button.evaluate(CONTRAST) >= 4.5, button.inner_text()
    page.get_by_label("Root", exact=True).focus()
    label = page.get_by_text("Root", exact=True)
    wait_until(lambda: label.evaluate(CONTRAST) >= 4.5)  # its colour changes slowly


def test_fields_and_tables_say_what_they_are(open_page: Open, acker: Acker) -> None:
    for i in range(11):
        roots, edges = acker.allocate(f"s{i}", 2), new_edges(2)
        acker.init(roots, edges)
        acker.ack(roots[0], edges[0])
    bury(acker, "order-1")
    page = open_page("--allow-actions", "--token", TOKEN).page
    expect(page.get_by_role("button", name="order-1: failed")).to_be_visible()
    assert page.get_by_role("combobox").count() == page.get_by_role("combobox", name="Spout").count() > 0
    for name in ("Spouts", "Shards", "Servers"):
        expect(page.get_by_role("region", name=name).get_by_role("table")).to_be_visible()
    expect(page.get_by_role("img", name="Completions of the last minute by latency: none")).to_be_visible()
    roots, edges = acker.allocate("s0", 3), new_edges(3)
    acker.init(roots, edges)
    acker.ack(roots, edges)
    expect(page.get_by_role("img", name="by latency: 3 ≤")).to_be_visible()
