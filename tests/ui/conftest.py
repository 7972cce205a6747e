"""Fixtures: a namespace with something in it, a browser, and pages that are watched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from redis_acker import Acker
from tests.binaries import require_chromium
from tests.cli.conftest import market
from tests.servers import Server
from tests.ui.serving import Served
from tests.ui.watched import Open, Watched

__all__ = ["market"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = require_chromium()
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def acker(durable_server: Server) -> Iterator[Acker]:
    with Acker(durable_server.url, namespace="shop", timeout_ms=600_000) as found:
        yield found


@pytest.fixture
def open_page(browser: Browser, durable_server: Server, acker: Acker) -> Iterator[Open]:
    """open_page("--allow-actions", ...): the page, served with these options."""
    served: list[Served] = []
    watched: list[Watched] = []

    def open_one(*options: str, at: str | None = None, user: str = "", **browsing: Any) -> Watched:
        if at is None:
            served.append(Served(durable_server.url.replace("redis://", f"redis://{user}"), "shop", *options))
        watched.append(Watched(browser, at or served[-1].url, **browsing))
        return watched[-1]

    yield open_one
    for one in watched:
        one.close()
    for process in served:
        process.stop()
    for one in watched:
        assert one.complaints == []
        assert one.page.url.startswith("http://127.0.0.1")
