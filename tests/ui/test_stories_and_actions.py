"""Roots, dead letters and hostile texts on the page, and who may act there."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from redis_acker import Acker, new_edges
from redis_acker.retries.book import FailedAttempt, RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.store.roles import role
from tests.servers import Server
from tests.ui.serving import TOKEN
from tests.ui.watched import Open, bury

pytestmark = pytest.mark.full


HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"


def test_a_root_is_looked_up_by_keyboard_alone(open_page: Open, acker: Acker) -> None:
    roots = acker.allocate("orders", 2)
    acker.init(roots, new_edges(2), message_ids=["order-1", "order-2"])
    acker.fail(roots[1], component="billing", error="no such customer")
    page = open_page()
    story = page.page.locator('[data-part="story"]')
    field = page.page.get_by_label("Root", exact=True)
    for text, answer in (
        (hex(int(roots[0])), "pending: waits for its final event"),
        (str(int(roots[1])), "no such customer"),
        ("nonsense", "'nonsense' is not a root"),
        ("12345", "unknown: never seen here"),
    ):
        field.fill(text)
        field.press("Enter")
        expect(story).to_contain_text(answer)


def test_hostile_texts_are_shown_as_text(open_page: Open, acker: Acker) -> None:
    roots = acker.allocate(HOSTILE, 1)
    acker.init(roots, new_edges(1), message_ids=[HOSTILE])
    acker.fail(roots, component=HOSTILE[:200], error=HOSTILE)
    bury(acker, HOSTILE, history=[FailedAttempt(1, "failed", HOSTILE, HOSTILE, 1)])
    page = open_page()
    expect(page.page.get_by_text(HOSTILE).first).to_be_visible()
    letter = page.page.locator('[data-part="letter"]')
    letter.first.get_by_role("button").first.click()
    expect(letter.first.get_by_text("Failed attempts")).to_be_visible()
    page.page.get_by_label("Root", exact=True).fill(hex(int(roots[0])))
    page.page.get_by_role("button", name="Look up").click()
    expect(page.page.locator('[data-part="story"]')).to_contain_text(HOSTILE)
    assert page.page.title() == "redis-acker: shop"
    assert page.page.locator("img[src=x]").count() == 0


def test_without_the_switch_nobody_can_act(open_page: Open, acker: Acker) -> None:
    bury(acker, "order-1")
    page = open_page()
    letter = page.page.locator('[data-part="letter"]').first
    letter.get_by_role("button").first.click()
    expect(letter.get_by_text("Failed attempts")).to_be_visible()
    assert page.page.get_by_role("button", name="Allow actions").count() == 0
    assert page.page.get_by_role("button", name="Replay").count() == 0


def test_letters_that_come_later_are_announced_and_do_not_move_the_list(open_page: Open, acker: Acker) -> None:
    bury(acker, "order-1")
    page = open_page()
    letters, news = page.page.locator('[data-part="letter"]'), page.page.locator('[data-part="news"]')
    letters.first.get_by_role("button").first.click()
    expect(letters.first.get_by_text("Failed attempts")).to_be_visible()
    expect(news).to_have_text("")
    bury(acker, "order-2", "order-3")
    expect(news).to_have_text("2 more since this list was read: First page reads it again.")
    expect(letters.first.get_by_text("Failed attempts")).to_be_visible()
    assert letters.count() == 1
    page.page.get_by_role("button", name="First page").click()
    expect(letters).to_have_count(3)
    expect(news).to_have_text("")


def test_with_the_token_a_dead_letter_is_replayed_after_one_question(open_page: Open, acker: Acker) -> None:
    bury(acker, "order-1", "order-2")
    page = open_page("--allow-actions", "--token", TOKEN)
    letter = page.page.locator('[data-part="letter"]').filter(has_text="order-1")
    letter.get_by_role("button").first.click()
    replay = letter.get_by_role("button", name="Replay")
    expect(letter.get_by_text("Failed attempts")).to_be_visible()
    expect(replay).to_be_hidden()
    page.try_token("wrong-horse-battery")
    expect(page.page.get_by_text("That is not the token.")).to_be_visible()
    page.page.get_by_label("Token").fill(TOKEN)
    page.page.get_by_label("Token").press("Enter")
    expect(replay).to_be_visible()
    replay.click()
    page.page.get_by_role("alertdialog").get_by_role("button", name="Cancel").click()
    expect(page.page.get_by_role("alertdialog")).to_be_hidden()
    assert len(DeadLetters(acker)) == 2
    replay.click()
    page.page.get_by_role("alertdialog").get_by_role("button", name="Replay").click()
    expect(page.page.get_by_text("is given back to its driver")).to_be_visible()
    assert [request.message_id for request in RetryBook(acker, "orders").requests()] == ["order-1"]
    other = page.page.locator('[data-part="letter"]').filter(has_text="order-2")
    other.get_by_role("button").first.click()
    other.get_by_role("button", name="Purge").click()
    page.page.get_by_role("alertdialog").get_by_role("button", name="Purge").click()
    expect(page.page.get_by_text("is purged")).to_be_visible()
    assert len(DeadLetters(acker)) == 0


def test_a_root_is_extended_and_failed_on_the_page(open_page: Open, acker: Acker) -> None:
    roots = acker.allocate("orders", 1)
    acker.init(roots, new_edges(1))
    page = open_page("--allow-actions", "--token", TOKEN)
    page.unlock(TOKEN)
    page.page.get_by_label("Root", exact=True).fill(hex(int(roots[0])))
    page.page.get_by_role("button", name="Look up").click()
    for verb, answer in (("Extend", "has its whole timeout again"), ("Fail", "has failed")):
        page.page.get_by_role("button", name=verb, exact=True).click()
        page.page.get_by_role("alertdialog").get_by_role("button", name=verb).click()
        expect(page.page.get_by_text(answer)).to_be_visible()
    expect(page.page.locator('[data-part="story"]')).to_contain_text("failed by hand")


def test_a_browser_that_stands_still_for_a_while_keeps_its_page(open_page: Open, acker: Acker) -> None:
    page = open_page("--allow-actions", "--token", TOKEN)
    page.unlock(TOKEN)
    page.page.evaluate("window.isTheSame = true; const end = Date.now() + 12000; while (Date.now() < end);")
    acker.init(acker.allocate("orders", 7), new_edges(7))
    expect(page.tile("pending")).to_have_text("7")
    expect(page.page.get_by_role("button", name="Actions are allowed")).to_be_visible()
    assert page.page.evaluate("window.isTheSame") is True


def test_a_user_of_the_store_who_may_only_look_is_told_so(
    open_page: Open, durable_server: Server, acker: Acker
) -> None:
    bury(acker, "order-1")
    with durable_server.client() as client:
        client.execute_command("ACL", "SETUSER", "looker", *role("inspector").rules("shop"), ">pw")
    page = open_page("--allow-actions", "--token", TOKEN, user="looker:pw@")
    page.unlock(TOKEN)
    letter = page.page.locator('[data-part="letter"]').first
    letter.get_by_role("button").first.click()
    letter.get_by_role("button", name="Purge").click()
    page.page.get_by_role("alertdialog").get_by_role("button", name="Purge").click()
    expect(page.page.locator(".q-notification")).to_contain_text("check user, password and ACL rights")
    assert len(DeadLetters(acker)) == 1
