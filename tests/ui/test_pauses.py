"""A spout is paused and resumed on the page, and its lag is shown."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from redis_acker import Acker, new_edges
from redis_acker.store.lease import Lease
from redis_acker.store.spout_states import SpoutStates
from tests.ui.serving import TOKEN
from tests.ui.watched import Open

pytestmark = pytest.mark.full


def test_with_the_token_a_spout_is_paused_and_resumed_after_one_question_each(open_page: Open, acker: Acker) -> None:
    for name in ("orders", "returns"):
        acker.init(acker.allocate(name, 1), new_edges(1))
    Lease(acker, "orders", for_ms=600_000).renew()
    states = SpoutStates(acker.shards)
    states.note_lag(acker.spout_number("orders"), 1234)
    page = open_page("--allow-actions", "--token", TOKEN)
    table = page.page.get_by_role("region", name="Spouts")
    expect(table.get_by_role("cell", name="1,234")).to_be_visible()
    pauses = page.page.locator('[data-part="pauses"]')
    expect(pauses).to_be_hidden()
    page.unlock(TOKEN)
    expect(pauses.get_by_role("combobox", name="Spout")).to_have_value("orders")
    question = page.page.get_by_role("alertdialog")
    pauses.get_by_role("button", name="Pause").click()
    question.get_by_role("button", name="Cancel").click()
    expect(question).to_be_hidden()
    assert states.all()[acker.spout_number("orders")].paused_ms is None
    pauses.get_by_role("button", name="Pause").click()
    question.get_by_role("button", name="Pause").click()
    expect(table.get_by_role("cell", name="orders (paused)")).to_be_visible()
    assert states.is_paused(acker.spout_number("orders"))
    assert not states.is_paused(acker.spout_number("returns"))
    pauses.get_by_role("button", name="Resume").click()
    question.get_by_role("button", name="Resume").click()
    expect(table.get_by_role("cell", name="orders", exact=True)).to_be_visible()
    assert not states.is_paused(acker.spout_number("orders"))


def test_a_page_without_the_switch_shows_pauses_and_has_no_button(open_page: Open, acker: Acker) -> None:
    acker.init(acker.allocate("orders", 1), new_edges(1))
    SpoutStates(acker.shards).pause(acker.spout_number("orders"))
    page = open_page()
    expect(page.page.get_by_role("cell", name="orders (paused)")).to_be_visible()
    assert page.page.get_by_role("button", name="Resume").count() == 0
