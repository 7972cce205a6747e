"""A page in a real browser, watched: it loads nothing from elsewhere, and the browser finds nothing wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Page, expect

from redis_acker import Acker
from redis_acker.retries.book import DeadLetter, FailedAttempt, RetryBook

PATIENCE_MS = 30_000

Open = Callable[..., "Watched"]


class Watched:
    """An open page. When the test is over, it has loaded nothing from elsewhere and the browser found nothing wrong."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", self._check_host)
        self.page.goto(url)

    def _check_host(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", self.url.replace("http", "ws"))):
            self.complaints.append(f"loads {request.url}")

    def tile(self, name: str) -> Any:
        return self.page.locator(f'[data-tile="{name}"]')

    def number(self, name: str) -> int | None:
        text = self.tile(name).inner_text()
        return None if text == "-" else int(text.replace(",", ""))

    def try_token(self, token: str) -> None:
        self.page.get_by_role("button", name="Allow actions").click()
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Unlock").click()

    def unlock(self, token: str) -> None:
        """Returns when the dialog is gone: until then it keeps the focus, and takes what is typed elsewhere."""
        self.try_token(token)
        expect(self.page.get_by_role("button", name="Actions are allowed")).to_be_visible()
        expect(self.page.get_by_label("Token")).to_have_count(0)

    def close(self) -> None:
        self.context.close()


def bury(acker: Acker, *names: str, **options: Any) -> None:
    book = RetryBook(acker, "orders")
    for name in names:
        attempts = [FailedAttempt(i, "failed", "billing", "no such customer", 1_700_000_000_000) for i in (1, 2)]
        book.bury(DeadLetter(name, "orders", options.get("history", attempts), False, ["values", name]))
