"""A page in a real browser, watched: it loads nothing from elsewhere, and the browser finds nothing wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Page, expect

from redis_acker import Acker
from redis_acker.retries.book import DeadLetter, FailedAttempt, RetryBook

PATIENCE_MS = 30_000

CONTRAST = """it => {
  const parts = colour => colour.match(/[0-9.]+/g).map(Number);
  let behind = it;
  while (behind && (parts(getComputedStyle(behind).backgroundColor)[3] ?? 1) < 1) behind = behind.parentElement;
  const light = colour => {
    const [r, g, b] = parts(colour).map(one => one / 255).map(
      one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const two = [getComputedStyle(it).color, behind ? getComputedStyle(behind).backgroundColor : "rgb(255,255,255)"];
  const [low, high] = two.map(light).sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""
"""How much an element's text differs from what is behind it: 4.5 is the least that is easy to read."""

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
