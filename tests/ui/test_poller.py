"""The one reading that all pages share, and who may act."""

from __future__ import annotations

import asyncio

import pytest

from redis_acker import Acker, new_edges
from redis_acker.errors import ServerUnavailable
from redis_acker.retries.book import DeadLetter, FailedAttempt, Retry, RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.ui import rights as ui_rights
from redis_acker.ui.desk import Desk
from redis_acker.ui.poller import KEPT, Poller
from redis_acker.ui.rights import Rights
from redis_acker.views import runs
from redis_acker.views.failures import MOST_EACH, FailureGroup, read_failures
from redis_acker.views.overview import read_overview
from redis_acker.views.runs import read_runs
from tests.backends import Backend
from tests.cli.stored_runs import StoredRun
from tests.servers import Server
from tests.waiting import wait_until


def test_a_reading_has_what_happened_since_the_last(durable_server: Server) -> None:
    with Acker(durable_server.url) as acker:
        poller = Poller(lambda: acker, every_s=0.02).start()
        wait_until(lambda: poller.reading.view)
        roots, edges = acker.allocate("orders", 100), new_edges(100)
        acker.init(roots, edges)
        acker.ack(roots[:60], edges[:60])
        wait_until(lambda: poller.reading.view and poller.reading.view.pending == 40)
        assert sum(one.speed.completed > 0 for one in poller.reading.points) == 1
        assert poller.reading.latency.count == 60
        wait_until(lambda: len(poller.reading.points) == KEPT, 30)
        number = poller.reading.number
        wait_until(lambda: poller.reading.number > number)
        assert len(poller.reading.points) == KEPT
        poller.stop()


def test_an_error_of_any_kind_is_said_and_the_next_reading_works(
    durable_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    trouble: list[Exception] = []

    with Acker(durable_server.url) as acker:

        def open_acker() -> Acker:
            if trouble:
                raise trouble[0]
            return acker

        poller = Poller(open_acker, every_s=0.02).start()
        wait_until(lambda: poller.reading.view)
        trouble.append(SystemError("bad argument to internal function"))
        wait_until(lambda: poller.reading.away == "SystemError: bad argument to internal function")
        number = poller.reading.number
        wait_until(lambda: poller.reading.number > number + 2)
        trouble.clear()
        wait_until(lambda: poller.reading.away is None)
        poller.stop()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "The store cannot be read: SystemError: bad argument to internal function"
    ]


def test_a_store_that_lost_its_data_is_not_taken_for_a_quiet_one(durable_server: Server) -> None:
    with Acker(durable_server.url) as acker, durable_server.client() as client:
        acker.init(acker.allocate("orders", 5), new_edges(5))
        poller = Poller(lambda: acker, every_s=0.02).start()
        wait_until(lambda: poller.reading.view)
        client.flushall()
        wait_until(lambda: "does not exist any more" in (poller.reading.away or ""))
        acker.init(acker.allocate("orders", 3), new_edges(3))
        wait_until(lambda: poller.reading.view and poller.reading.view.pending == 3)
        poller.stop()


def test_a_store_that_is_away_is_said_and_comes_back_by_itself(durable_server: Server) -> None:
    with Acker(durable_server.url, retry_for_s=0.1) as acker:
        acker.init(acker.allocate("orders", 5), new_edges(5))
        poller = Poller(lambda: acker, every_s=0.02).start()
        wait_until(lambda: poller.reading.view)
        durable_server.kill()
        wait_until(lambda: poller.reading.away)
        since_s, view = poller.reading.away_since_s, poller.reading.view
        assert view is not None
        assert view.pending == 5
        with pytest.raises(ServerUnavailable):
            _ = poller.acker
        number = poller.reading.number
        wait_until(lambda: poller.reading.number > number + 1)
        assert poller.reading.away_since_s == since_s
        durable_server.restart()
        wait_until(lambda: poller.reading.away is None)
        assert poller.acker is acker
        poller.stop()


def test_failures_are_grouped_by_cause_wherever_they_are(backend: Backend, namespace: str) -> None:
    with Acker(backend.target, namespace=namespace, shards=2) as acker:
        roots = acker.allocate("orders", 10)
        acker.init(roots, new_edges(10))
        acker.fail(roots[:3], component="parse", error="bad date")
        acker.fail(roots[3], component="parse", error="bad date")
        book = RetryBook(acker, "orders")
        old = FailedAttempt(1, "timeout", "", "", 5)
        book.note({1: Retry([old, FailedAttempt(2, "failed", "bill", "no customer", 7)])})
        book.bury(DeadLetter(2, "orders", [old, FailedAttempt(2, "failed", "bill", "no customer", 9)], False, None))
        more = acker.allocate("returns", 6)
        acker.init(more, new_edges(6))
        acker.fail(more, component="parse", error="bad date")
        first, second = read_failures(acker, read_overview(acker).spouts)
    assert (first.component, first.error, first.spouts, first.count) == ("parse", "bad date", ["returns", "orders"], 10)
    assert second == FailureGroup("failed", "bill", "no customer", ["orders"], 2, 9)


def test_failures_are_a_bounded_sample(backend: Backend, namespace: str) -> None:
    with Acker(backend.target, namespace=namespace) as acker:
        roots = acker.allocate("orders", MOST_EACH + 30)
        acker.init(roots, new_edges(len(roots)))
        for root in roots.tolist():
            acker.fail(root, component="parse")
        [group] = read_failures(acker, read_overview(acker).spouts)
    assert group.count == MOST_EACH


def test_dead_letters_are_read_a_page_at_a_time(backend: Backend, namespace: str) -> None:
    with Acker(backend.target, namespace=namespace) as acker:
        book = RetryBook(acker, "orders")
        attempt = FailedAttempt(1, "failed", "parse", "x" * 100, 1)  # so long that the hash is not read as a whole
        for i in range(300):
            book.bury(DeadLetter(i, "orders", [attempt], False, None))
        letters, cursor = DeadLetters(acker, spout="orders"), b"0"
        pages: list[list[object]] = []
        while not pages or cursor != b"0":
            cursor, page = letters.page("orders", cursor, 20)
            pages.append([one.message_id for one in page])
    assert {one for page in pages for one in page} == set(range(300))
    assert backend.kind == "fake" or max(map(len, pages)) < 100


def test_the_roots_of_a_spark_run_are_part_of_the_view(backend: Backend, namespace: str) -> None:
    with Acker(backend.target, namespace=namespace) as acker:
        acker.init(acker.allocate("orders", 10), new_edges(10))
        [spout] = read_overview(acker).spouts
        assert spout.run_roots is None
        acker.shards.ask(0, "SET", acker.shards.keys[0].run(acker.spout_number("orders")), "17 1000 500")
        [spout] = read_overview(acker).spouts
        assert spout.run_roots == 1000


def test_runs_whose_tasks_keep_the_books_are_read_a_bounded_number(
    backend: Backend, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Acker(backend.target, namespace=namespace) as acker:
        assert read_runs(acker, most=20) == []
        run = StoredRun(acker, "orders", partitions=3)
        run.work(0, 5, 7, failed=2)
        run.finish(1, 4)
        [view] = read_runs(acker, most=20)
        assert (view.about.spout, view.done, view.failed, view.in_work, view.ended, view.driver) == (
            *("orders", 9, 2, 7),
            *(1, None),
        )
        StoredRun(acker, "returns")
        assert len(read_runs(acker, most=20)) == 2
        assert len(read_runs(acker, most=1)) == 1
        monkeypatch.setattr(runs, "MOST_PARTITIONS", 2)
        assert [one.about.spout for one in read_runs(acker, most=20)] == ["returns"]
        monkeypatch.undo()
        acker.shards.progress(acker.spout_number("orders")).put({"about": "nonsense"})
        assert [one.about.spout for one in read_runs(acker, most=20)] == ["returns"]


def test_a_page_that_does_not_know_the_token_does_not_act_whatever_it_sends() -> None:
    acted = ["not done"]

    async def act(token: str | None, *, is_unlocked: bool) -> bool:
        desk = Desk(Poller(lambda: pytest.fail("it asks the store")), Rights(token))
        desk.is_unlocked = is_unlocked
        return await desk.act("Really?", "Do it", lambda: acted.pop())

    assert not asyncio.run(act("secret", is_unlocked=False))
    assert not asyncio.run(act(None, is_unlocked=True))
    assert acted == ["not done"]


def test_only_the_token_gives_the_right_to_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_rights, "WRONG_TOKEN_S", 0.0)

    async def tried(token: str | None, *tries: str) -> list[bool]:
        rights = Rights(token)
        return [await rights.knows(one) for one in tries]

    assert asyncio.run(tried("secret", "", "secre", "secret", "sécret", "\ud800")) == [False, False, True, False, False]
    assert asyncio.run(tried(None, "", "None")) == [False, False]
