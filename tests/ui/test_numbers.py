"""What the page shows in a real browser agrees with stats, and costs the store no more than one reading."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

import pytest
from playwright.sync_api import expect

from redis_acker import Acker, new_edges
from redis_acker.store.lease import Lease
from redis_acker.store.tracked_streams import TrackedStreamRecord, TrackedStreams
from tests.cli.runs import redis_acker
from tests.cli.stored_runs import StoredRun
from tests.servers import Server
from tests.ui.watched import Open, Watched, bury
from tests.waiting import wait_until

pytestmark = pytest.mark.full


def test_numbers_lie_between_two_readings_under_load_and_equal_them_once_quiet(
    open_page: Open, durable_server: Server, acker: Acker
) -> None:
    page, quiet = open_page(), threading.Event()

    def stats() -> Any:
        ran = redis_acker("stats", "--interval", "1ms", "--json", "--url", durable_server.url, "-n", "shop")
        return json.loads(ran.stdout)

    def load() -> None:
        while not quiet.is_set():
            roots, edges = acker.allocate("orders", 50), new_edges(50)
            acker.init(roots, edges)
            acker.ack(roots[:40], edges[:40])
            acker.fail(roots[40:42], component="parse")

    worker = threading.Thread(target=load)
    worker.start()
    try:
        for _ in range(3):
            low = stats()["pending"]
            seen = pending_at_least(page, low)
            assert low <= seen <= stats()["pending"]
        wait_until(lambda: (page.number("completed-per-s") or 0) > 0, 30)
    finally:
        quiet.set()
        worker.join()
    [spout] = (last := stats())["spouts"]
    expect(page.tile("pending")).to_have_text(f"{last['pending']:,}")
    row = page.page.get_by_role("table").filter(has_text="orders").first.locator("tbody tr").first
    expect(row.locator("td").nth(3)).to_have_text(f"{spout['initialised']:,}")
    expect(row.locator("td").nth(4)).to_have_text(f"{spout['completed']:,}")
    expect(row.locator("td").nth(5)).to_have_text(f"{spout['failed']:,}")
    expect(page.tile("completed-per-s")).to_have_text("0")
    expect(page.page.locator('[data-bucket="0"]')).to_have_text(f"{last['shards'][0]['blocks'][0]:,}")
    expect(page.page.get_by_text("The next rotation is due in")).to_be_visible()


def pending_at_least(page: Watched, low: int) -> int:
    return wait_until(lambda: number if (number := page.number("pending") or 0) >= low else 0, 30)


def test_ten_pages_cost_the_store_no_more_than_one(open_page: Open, durable_server: Server) -> None:
    first = open_page()
    expect(first.tile("pending")).to_have_text("0")
    with durable_server.client() as client:

        def calls_of_readings(count: int) -> dict[str, float]:
            """Commands for each reading, over so many readings, so that one which is cut in two by the begin or the end
            counts for little. A reading asks for four hashes as a whole."""
            start = calls(client)
            wait_until(lambda: calls(client)["cmdstat_hgetall"] - start["cmdstat_hgetall"] >= 4 * count, 60)
            end = calls(client)
            readings = (end["cmdstat_hgetall"] - start["cmdstat_hgetall"]) / 4
            return {name: (end[name] - start[name]) / readings for name in end if "info" not in name}

        alone = calls_of_readings(6)
        for _ in range(9):
            expect(open_page(at=first.url).tile("pending")).to_have_text("0")
        together = calls_of_readings(6)
    assert together.keys() == alone.keys()
    assert all(together[name] <= alone[name] + 1 for name in alone), (alone, together)


def calls(client: Any) -> Counter[str]:
    return Counter({name: stats["calls"] for name, stats in client.info("commandstats").items()})


def test_a_thousand_spouts_and_many_dead_letters_are_shown_in_part(open_page: Open, acker: Acker) -> None:
    for i in range(1000):
        acker.init(acker.allocate(f"s{i}"), new_edges(1))
    bury(acker, "one")
    letter = acker.shards.dead(acker.spout_number("orders")).get("s:one") or b""
    assert letter
    for at in range(0, 100_000, 1000):
        letters_of = {f"s:{i}": letter.decode().replace('"s:one"', f'"s:{i}"') for i in range(at, at + 1000)}
        acker.shards.dead(acker.spout_number("orders")).put(letters_of)
    page = open_page()
    expect(page.tile("pending")).to_have_text("1,000")
    expect(page.tile("dead-letters")).to_have_text("100,001")
    expect(page.page.get_by_text("The 100 busiest of 1,001.")).to_be_visible()
    letters = page.page.locator('[data-part="letter"]')
    expect(letters.first).to_be_visible()
    assert 0 < letters.count() < 100
    page.page.get_by_text("Next page", exact=True).click()
    expect(letters.first).to_be_visible()
    assert 0 < letters.count() < 100


def test_spark_runs_are_shown_whoever_keeps_their_books(open_page: Open, acker: Acker) -> None:
    StoredRun(acker, "orders", partitions=4).finish(0, 30)
    acker.init(acker.allocate("lines", 25), new_edges(25))
    acker.shards.ask(0, "SET", acker.shards.keys[0].run(acker.spout_number("lines")), "1 100 500")
    page = open_page()
    runs = page.page.get_by_role("region", name="Spark runs and streams")
    expect(runs.get_by_role("row", name="orders 30 0 0 1 of 4 partitions gone")).to_be_visible()
    expect(runs.get_by_role("row", name="lines 75 - 25 75% of 100 gone")).to_be_visible()


def test_tracked_streams_are_shown_between_their_micro_batches_too(open_page: Open, acker: Acker) -> None:
    records = TrackedStreams(acker)
    for spout, batch in (("orders", 41), ("returns", -1), ("clicks", 0)):
        acker.init(acker.allocate(spout), new_edges(1))
        records.put(spout, TrackedStreamRecord("query", "id", batch))
    Lease(acker, "orders", for_ms=600_000).renew()
    StoredRun(acker, "returns", partitions=4).finish(0, 30)
    page = open_page()
    runs = page.page.get_by_role("region", name="Spark runs and streams")
    for row in (
        "orders - - - 42 micro-batches finished alive",
        "clicks - - - 1 micro-batch finished gone",
        "returns 30 0 0 0 micro-batches finished, next: 1 of 4 partitions gone",
    ):
        expect(runs.get_by_role("row", name=row)).to_be_visible()
    expect(runs.get_by_role("row")).to_have_count(4)
    expect(runs.get_by_text("None in progress.")).to_be_hidden()
    shown = redis_acker("stats", "--interval", "1ms", "--url", acker.urls[0], "-n", "shop").stdout
    assert "tracked stream  micro-batches  driver" in shown
    assert "orders                     42  alive" in shown
