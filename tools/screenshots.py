"""Makes the pictures of the README: `make screenshots`. Needs Chromium."""

from __future__ import annotations

import random
import re
import shutil
import sys
import threading
import time
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console

from redis_acker import Acker, Rotator, new_edges
from redis_acker.cli.stats import frame
from redis_acker.cli.top import drawn_frame
from redis_acker.retries.book import DeadLetter, FailedAttempt, RetryBook
from redis_acker.server.embedded import EmbeddedServer
from redis_acker.ui.server import serve_page
from redis_acker.views.overview import rates, read_overview

WATCHED_S = 60
"""How long the traffic runs before the pictures are taken."""

SPOUTS = {"orders": 400, "payments": 150, "clicks": 60}
"""Messages in half a second."""

CAUSES = [("billing", "no such customer"), ("parse", "bad date: '2024-02-31'"), ("billing", "card declined")]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    with EmbeddedServer() as server, Acker(server.url, namespace="shop", timeout_ms=20_000, buckets=4) as acker:
        threading.Thread(target=traffic, args=(acker, stop), daemon=True).start()
        with Rotator(acker).start(), serve_page(acker) as address:
            page(address, folder / "page.png")
            top(acker, folder / "top.svg")
            stop.set()


def traffic(acker: Acker, stop: threading.Event) -> None:
    """Messages that complete soon or late, fail, time out, and are given up."""
    waves = 0
    while not stop.wait(0.5):
        for spout, count in SPOUTS.items():
            roots, edges = acker.allocate(spout, count), new_edges(count)
            acker.init(roots, edges, message_ids=[f"{spout}-{waves}-{i}" for i in range(count)], quiet=True)
            component, error = random.choice(CAUSES)
            acker.fail(roots[-3:], component=component, error=error)
            done = int(count * random.uniform(0.97, 0.99)) - 3
            threading.Timer(random.choice((0.02, 0.1, 0.4, 1.5)), acker.ack, (roots[:done], edges[:done])).start()
        if waves % 20 == 0:
            attempts = [FailedAttempt(i, "failed", *CAUSES[0], int(time.time() * 1000)) for i in (1, 2, 3)]
            RetryBook(acker, "orders").bury(DeadLetter(f"orders-{waves}-1", "orders", attempts, False, None))
        waves += 1


def page(address: str, path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1200, "height": 900})
        opened.goto(address)
        opened.wait_for_timeout(1000 * WATCHED_S)
        spouts = opened.get_by_role("region", name="Spouts").bounding_box()
        assert spouts
        size = {"x": 0, "y": 0, "width": 1200, "height": spouts["y"] + spouts["height"] + 16}
        opened.screenshot(path=path, full_page=True, clip=size)  # type: ignore[arg-type]
        browser.close()


def top(acker: Acker, path: Path) -> None:
    before = read_overview(acker)
    time.sleep(2)
    view = read_overview(acker)
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=92, file=nowhere)
        console.print(drawn_frame(frame(view, rates(before, view))))
    svg = console.export_svg(title="redis-acker top")
    # Without the fonts that it would fetch from another host.
    path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
