"""A whole namespace at one moment: counters, ages, streams, rotation, servers."""

import itertools
from dataclasses import replace

import pytest

from redis_acker import Acker, Rotator, new_edges
from redis_acker.retries.book import FailedAttempt, Retry, RetryBook
from redis_acker.store.pending import PendingRoot, oldest_first
from redis_acker.store.tracked_streams import TrackedStreamRecord, TrackedStreams
from redis_acker.views.overview import rates as rates_between
from redis_acker.views.overview import read_overview
from redis_acker.views.readers import read_streams
from redis_acker.views.trace import trace
from tests.backends import Backend
from tests.waiting import wait_until


@pytest.fixture
def acker(backend: Backend, namespace: str) -> Acker:
    return Acker(backend.target, namespace=namespace, shards=3, block_size=5, timeout_ms=600_000)


def start(acker: Acker, spout: str, count: int) -> list[int]:
    roots, edges = acker.allocate(spout, count), new_edges(count)
    acker.init(roots, edges, message_ids=range(count))
    acker.ack(roots[:2], edges[:2])
    acker.fail(roots[2], component="parse", error="bad")
    found: list[int] = roots.tolist()
    return found


def test_an_overview_has_all_spouts_shards_and_servers(acker: Acker) -> None:
    start(acker, "orders", 50)
    start(acker, "clicks", 7)
    view = read_overview(acker)

    orders, clicks = sorted(view.spouts, key=lambda one: -one.stats.pending)
    assert (orders.name, orders.stats.pending, clicks.name, clicks.stats.pending) == ("orders", 47, "clicks", 4)
    assert (orders.unread_completions, orders.unread_failures, orders.retries, orders.dead) == (1, 1, 0, 0)
    assert [one.shard for one in view.shards] == [0, 1, 2]
    assert view.pending == sum(one.stats.pending for one in view.shards) == 51
    assert sorted(shard for server in view.servers for shard in server.shards) == [0, 1, 2]
    assert {one.server for one in view.shards} == {server.address for server in view.servers}
    assert (view.overdue_ms, view.is_oldest_exact) == (0, True)
    assert all(0 < one.due_in_ms <= 300_000 for one in view.shards)
    assert [server.error for server in view.servers] == [None] * len(view.servers)


def test_where_only_orphans_are_there_is_no_oldest_root(acker: Acker) -> None:
    roots = acker.allocate("orders", 20)
    acker.ack(roots, new_edges(20))
    view = read_overview(acker)
    assert sum(sum(one.blocks) for one in view.shards) == 4
    assert (view.pending, {one.oldest_at_most_ms for one in view.shards}) == (0, {0})
    acker.init(roots, new_edges(20))
    wait_until(lambda: any(one.oldest_at_most_ms for one in read_overview(acker).shards))


def test_the_micro_batches_of_a_stream_are_counted_and_what_cannot_be_read_is_left_out(acker: Acker) -> None:
    for spout in ("orders", "clicks", "returns"):
        start(acker, spout, 3)
    TrackedStreams(acker).put("orders", TrackedStreamRecord("query", "id", 41))
    acker.shards.tracked_streams().put({"clicks": "nonsense", "returns": '{"query": 1, "batch": "x", "format": 1}'})
    found = {one.name: one.micro_batches for one in read_overview(acker).spouts}
    assert found == {"orders": 42, "clicks": None, "returns": None}


def test_a_message_is_among_the_retries_until_it_is_over(acker: Acker) -> None:
    start(acker, "orders", 3)
    attempt = FailedAttempt(1, "failed", "parse", "bad", 1)
    RetryBook(acker, "orders").note({1: Retry([attempt])})
    acker.init(acker.allocate("orders"), new_edges(1), message_ids=[1], attempts=2)
    [orders] = read_overview(acker).spouts
    assert (orders.retries, orders.stats.replayed) == (1, 1)
    RetryBook(acker, "orders").forget([1])
    [orders] = read_overview(acker).spouts
    assert orders.retries == 0


def test_the_oldest_root_of_a_spout_and_a_shard_is_found(acker: Acker) -> None:
    start(acker, "orders", 30)
    wait_until(lambda: (read_overview(acker).oldest_ms or 0) >= 50)
    start(acker, "clicks", 5)
    view = read_overview(acker)

    by_name = {one.name: one.oldest_ms for one in view.spouts}
    assert by_name["orders"] is not None
    assert by_name["clicks"] is not None
    assert by_name["orders"] >= by_name["clicks"] + 50
    assert view.oldest_ms == by_name["orders"] == max(one.oldest_ms or 0 for one in view.shards)


def test_a_bounded_search_says_that_it_may_have_missed_an_older_root(acker: Acker) -> None:
    start(acker, "orders", 100)

    assert read_overview(acker, most_blocks=1).is_oldest_exact is False
    assert read_overview(acker, most_blocks=1000).is_oldest_exact is True


def test_a_namespace_without_roots_has_no_oldest_one(acker: Acker) -> None:
    view = read_overview(acker)

    assert (view.pending, view.oldest_ms, view.spouts) == (0, None, [])


def test_rates_are_the_difference_of_two_overviews(acker: Acker) -> None:
    before = read_overview(acker)
    start(acker, "orders", 50)
    after = replace(read_overview(acker), taken_s=before.taken_s + 2)

    speed = rates_between(before, after)["orders"]
    assert (speed.initialised, speed.completed, speed.failed, speed.timeout) == (25, 1, 0.5, 0)
    lost = rates_between(after, replace(before, spouts=after.spouts, taken_s=after.taken_s + 1))["orders"]
    assert lost.initialised == 0


def test_streams_tell_who_reads_them(backend: Backend, acker: Acker) -> None:
    if backend.kind == "fake":
        return  # it does not tell about consumers as servers do
    start(acker, "orders", 50)
    found = {one.kind: one for one in read_streams(acker)}
    assert [found[kind].entries for kind in ("completions", "failures")] == [1, 1]
    assert found["completions"].idle_ms is None

    with acker.completions("orders") as completions:
        completions.read()
        read = {one.kind: one for one in read_streams(acker)}
    assert read["completions"].idle_ms is not None
    assert read["completions"].oldest_ms is not None
    assert read["failures"].idle_ms is None


def test_a_trace_finds_the_final_event_of_a_root(acker: Acker) -> None:
    roots = start(acker, "orders", 50)

    completed, failed, pending = (trace(acker, roots[i]) for i in (0, 2, 3))
    assert completed.event is not None
    assert completed.event.outcome == "completed"
    assert failed.event is not None
    assert (failed.event.outcome, failed.event.component, failed.event.error) == ("failed", "parse", "bad")
    assert (failed.message_id, failed.attempt) == (2, 1)
    assert (pending.event, pending.message_id, pending.state.state) == (None, 3, "pending")


def test_a_timeout_is_traced_too(backend: Backend, namespace: str) -> None:
    with Acker(backend.target, namespace=namespace, timeout_ms=100, buckets=2) as acker:
        [root] = acker.allocate("orders").tolist()
        acker.init([root], [1])
        wait_until(lambda: Rotator(acker).once().expired == 1)

        event = trace(acker, root).event
    assert event is not None
    assert (event.outcome, event.attempt) == ("timeout", 1)


def pending(root: int, age_ms: int) -> PendingRoot:
    return PendingRoot(root, "orders", 0, None, 1, age_ms, 0)


def test_the_oldest_of_a_listing_come_first_and_once() -> None:
    listing = iter([pending(1, 5), pending(2, 9), pending(1, 5), pending(3, 7)])

    assert [one.root for one in oldest_first(listing, 4)] == [2, 3, 1]


def test_the_search_for_the_oldest_is_bounded() -> None:
    endless = (pending(i, i) for i in itertools.count())

    assert [one.root for one in oldest_first(endless, 2, window=100)] == [99, 98]
