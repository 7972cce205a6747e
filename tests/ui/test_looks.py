"""How the page looks and reads: colours, a phone, a screen reader, a store that is away."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from redis_acker import Acker, new_edges
from redis_acker.retries.book import FailedAttempt
from tests.servers import Server
from tests.ui.serving import TOKEN
from tests.ui.watched import CONTRAST, Open, bury
from tests.waiting import wait_until

pytestmark = pytest.mark.full


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_colours_of_the_system_and_can_be_changed(open_page: Open, scheme: Any) -> None:
    page = open_page(color_scheme=scheme)
    body = page.page.locator("body")
    expect(page.tile("pending")).to_have_text("0")
    assert f"body--{scheme}" in (body.get_attribute("class") or "")
    page.page.get_by_role("button", name="Dark: auto").click()
    expect(page.page.get_by_role("button", name="Dark: on")).to_be_visible()
    wait_until(lambda: "body--dark" in (body.get_attribute("class") or ""))


def test_on_a_phone_nothing_is_wider_than_the_screen(open_page: Open, acker: Acker) -> None:
    bury(acker, "x" * 300)
    acker.init(acker.allocate("a-very-long-name-of-a-spout" * 5, 10), new_edges(10))
    page = open_page(viewport={"width": 390, "height": 844})
    expect(page.tile("pending")).to_have_text("10")
    expect(page.page.locator('[data-part="letter"]').first).to_be_visible()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_on_a_phone_all_buckets_and_the_errors_are_in_sight(open_page: Open, acker: Acker) -> None:
    roots = acker.allocate("orders", 1)
    acker.init(roots, new_edges(1))
    acker.fail(roots, component="billing", error="ConnectionError: it is away")
    page = open_page(viewport={"width": 390, "height": 844})
    error = page.page.get_by_role("region", name="Failures").get_by_text("ConnectionError: it is away")
    expect(error).to_be_visible()
    buckets = page.page.get_by_role("list", name="Buckets").get_by_role("listitem")
    tops = set()
    for part in (error, *(buckets.nth(bucket).get_by_text("0", exact=True) for bucket in range(4))):
        box = part.bounding_box()
        assert box
        assert box["x"] + box["width"] <= 360, part
        tops.add(box["y"])
    assert len(tops) == 2  # the numbers of the buckets are in one line


def test_what_fails_in_several_spouts_for_the_same_cause_is_one_line(open_page: Open, acker: Acker) -> None:
    for spout, count in (("orders", 1), ("returns", 2), ("clicks", 3), ("visits", 4)):
        roots = acker.allocate(spout, count)
        acker.init(roots, new_edges(count))
        acker.fail(roots, component="billing", error="card declined")
    bury(acker, "order-1", history=[FailedAttempt(1, "timeout", "", "", 1_700_000_000_000)])
    page = open_page()
    failures = page.page.get_by_role("region", name="Failures").get_by_role("row")
    expect(failures).to_have_count(3)
    expect(failures.nth(1)).to_contain_text("billing")
    expect(failures.nth(1).get_by_role("cell").nth(2)).to_have_text("10")
    expect(failures.nth(1).get_by_role("cell").nth(4)).to_have_text("visits, clicks, returns and 1 more")
    expect(failures.nth(2).get_by_role("cell").nth(1)).to_have_text("timeout")


def test_long_ids_and_errors_leave_room_for_the_question(open_page: Open, acker: Acker) -> None:
    error = "it is away " * 300
    bury(acker, "x" * 1000, history=[FailedAttempt(1, "failed", "billing", error, 1_700_000_000_000)])
    page = open_page("--allow-actions", "--token", TOKEN, viewport={"width": 390, "height": 844})
    page.unlock(TOKEN)
    letter = page.page.locator('[data-part="letter"]')
    box = letter.bounding_box()
    assert box
    assert box["height"] < 300
    letter.get_by_role("button").first.click()
    expect(letter.get_by_text("x" * 1000, exact=True)).to_be_visible()
    letter.get_by_role("button", name="Replay").click()
    expect(page.page.get_by_role("alertdialog").get_by_role("button", name="Replay")).to_be_in_viewport()


def test_parts_have_headings_and_buttons_have_names_for_a_screen_reader(open_page: Open, acker: Acker) -> None:
    acker.init(acker.allocate("orders", 1), new_edges(1))
    page = open_page()
    expect(page.tile("pending")).to_have_text("1")
    expect(page.page.get_by_role("heading", level=1)).to_have_text("redis-acker: shop")
    assert page.page.get_by_role("heading", level=2).count() >= 9
    assert page.page.get_by_role("status").filter(has_text="live").count() == 1
    assert page.page.locator("html").get_attribute("lang") == "en-US"
    unnamed = page.page.evaluate(
        "[...document.querySelectorAll('button')].filter(b => b.offsetParent && !b.innerText.trim()"
        " && !b.getAttribute('aria-label')).length"
    )
    assert unnamed == 0


def test_a_store_that_is_away_is_said_and_the_page_comes_back_by_itself(
    open_page: Open, durable_server: Server, acker: Acker
) -> None:
    acker.init(acker.allocate("orders", 7), new_edges(7))
    bury(acker, "order-1")
    page = open_page(color_scheme="dark")
    expect(page.tile("pending")).to_have_text("7")
    durable_server.kill()
    banner = page.page.locator('[data-part="banner"]')
    expect(banner).to_contain_text("The store is away since")
    expect(page.page.locator('[data-part="state"]')).to_have_text("store away")
    expect(page.tile("pending")).to_have_text("7")
    expect(page.page.get_by_text("is not known while the store is away")).to_be_visible()
    page.page.get_by_role("button", name="First page").click()
    assert page.page.get_by_role("button", name="Close").evaluate(CONTRAST) >= 4.5
    later = open_page(at=page.url)
    expect(later.tile("pending")).to_have_text("7")
    expect(later.page.get_by_role("region", name="Failures").get_by_text("no such customer")).to_be_visible()
    durable_server.restart()
    expect(later.page.locator('[data-part="letter"]')).to_have_count(1)
    expect(page.page.locator('[data-part="state"]')).to_have_text("live")
    expect(banner).to_be_hidden()
    acker.init(acker.allocate("orders", 1), new_edges(1))
    expect(page.tile("pending")).to_have_text("8")
