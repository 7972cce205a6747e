"""`redis-acker runs list` and `runs show`: Spark runs that are under way, and those that have not ended."""

from __future__ import annotations

import re
from typing import Any

import pytest

from redis_acker.store.progress import KEPT_FOR_MS
from redis_acker.store.run_records import Place, RunAbout, field_of
from tests.cli.looking import Market
from tests.cli.stored_runs import AGE_MS, WHERE, StoredRun
from tests.cli.test_commands import on_terminal


@pytest.fixture
def run(market: Market) -> StoredRun:
    """Partition 0 is done, 1 in work, 2 and 3 are not begun; a message that failed is replayed."""
    found = StoredRun(market.acker)
    found.finish(0, 71_900, failed=3)
    found.work(1, 100, 50, failed=1)
    found.work(0, 0, 1, pass_number=1)
    return found


def test_a_run_is_listed_for_people(market: Market, run: StoredRun) -> None:
    work, _, times = market.text("runs", "list").partition("\n\n")
    head, line = (" ".join(line.split()) for line in work.splitlines())
    assert head == "spout done failed in work partitions done/s"
    assert line in ("orders 72,000 4 51 2 of 4 10.0", "orders 72,000 4 51 2 of 4 9.9"), "in 7,200 seconds"
    head, line = (" ".join(line.split()) for line in times.splitlines())
    assert head == "spout driver started age touched forgotten in"
    assert re.fullmatch(r"orders gone \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ 2h 0m [\d.]+ m?s ago (6d 23h|7d 0h)", line)


def test_a_run_is_listed_for_programs(market: Market, run: StoredRun) -> None:
    with run.driven():
        [found] = market.lines("runs", "list")
    assert AGE_MS <= found.pop("age_ms") < AGE_MS + 60_000
    assert AGE_MS <= found.pop("touched_at_ms") - run.started_ms < AGE_MS + 60_000
    assert KEPT_FOR_MS - 60_000 < found.pop("forgotten_in_ms") <= KEPT_FOR_MS
    assert 9.8 < found.pop("per_second") <= 10
    assert " pid " in found.pop("driver")
    assert found == {
        "schema": 1,
        "kind": "run",
        "spout": "orders",
        "began": WHERE,
        "started_at_ms": run.started_ms,
        "done": 72_000,
        "failed": 4,
        "in_work": 51,
        "partitions_begun": 2,
        "partitions_done": 1,
        "partitions_known": 4,
    }
    assert market.lines("runs", "list")[0]["driver"] is None


def test_a_run_whose_driver_holds_the_lease_is_alive(market: Market, run: StoredRun) -> None:
    with run.driven():
        assert market.text("runs", "list").splitlines()[-1].split()[1] == "alive"
        assert "\ndriver        alive: " in market.text("runs", "show", "orders")
    assert market.text("runs", "list").splitlines()[-1].split()[1] == "gone"


def test_of_a_run_that_has_only_started_nothing_is_made_up(market: Market) -> None:
    StoredRun(market.acker, partitions=0)
    [found] = market.lines("runs", "list")
    names = ("done", "failed", "in_work", "partitions_begun", "partitions_known", "per_second", "touched_at_ms")
    assert [found[name] for name in names] == [0, 0, 0, 0, None, None, None]
    ran = market.run("runs", "show", "orders")
    assert "done/s        -\ntouched       -\n" in ran.stdout
    assert ran.stdout.endswith("0 begun, 0 done; nobody knows how many there are\n")


def test_a_run_that_died_does_not_seem_to_get_slower(market: Market) -> None:
    """The rate is that up to the last touch."""
    run = StoredRun(market.acker)
    key = market.acker.shards.keys[0].progress(market.acker.spout_number("orders"))
    client: Any = market.acker.servers.client(0)
    client.hset(key, "0:0", f"5000 0 0 0 - 0 3 {run.started_ms + 10_000} 0 0 0")
    assert market.document("runs", "list")["per_second"] == 500


def test_the_list_fits_on_a_terminal(market: Market, run: StoredRun) -> None:
    printed = on_terminal(market, "runs", "list")
    assert re.search(r"orders +72,000 +4 +51 +2 of 4 ", printed)
    assert re.search(r"orders +gone +\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ +2h 0m .* ago +(6d 23h|7d 0h)", printed)


def test_every_spout_has_its_line_and_one_can_be_chosen(market: Market, run: StoredRun) -> None:
    StoredRun(market.acker, "payments").work(0, 0, 5)
    assert [one["spout"] for one in market.lines("runs", "list")] == ["orders", "payments"]
    assert [one["in_work"] for one in market.lines("runs", "list", "--spout", "payments")] == [5]


def test_no_run_is_no_error_and_said_in_one_sentence(market: Market) -> None:
    ran = market.run("runs", "list")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "No run is under way or unfinished.\n")
    ran = market.run("runs", "list", "--spout", "orders")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "Spout 'orders' has no run.\n")
    assert market.lines("runs", "list") == []


def test_a_run_that_has_ended_is_no_longer_listed(market: Market, run: StoredRun) -> None:
    run.drop()
    assert market.lines("runs", "list") == []


# -- one run -------------------------------------------------------------------------------------------------------


def test_a_run_is_shown_with_its_partitions_and_a_bar(market: Market, run: StoredRun) -> None:
    ran = market.run("runs", "show", "orders")
    assert ran.returncode == 0
    fields, _, table = ran.stdout.partition("\n\n")
    assert f"driver        gone; {WHERE} began the run\n" in fields
    assert "partitions    2 begun, 1 done, of 4\n" in fields
    assert fields.endswith(f"[{'#' * 10}{'.' * 30}] 25%")
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["pass", "partition", "done", "failed", "in", "work", "touched"]
    assert [row[:5] for row in rows[1:]] == [
        ["0", "0", "71,900", "3", "0"],
        ["0", "1", "100", "1", "50"],
        ["1", "0", "0", "0", "1"],
    ]
    assert [(row[-2], row[-1]) for row in rows[1:]] == [("ago", "done"), (rows[2][-2], "ago"), (rows[3][-2], "ago")]
    assert ran.stderr.startswith("Its driver is gone. The next run on the same input goes on from here;")


def test_a_run_that_cannot_be_continued_is_not_said_to_be(market: Market) -> None:
    """One of a job with a shuffle has no input that is known."""
    StoredRun(market.acker, read="")
    begins = "Its driver is gone. The next run "
    assert market.run("runs", "show", "orders").stderr.startswith(f"{begins}starts from the beginning")
    StoredRun(market.acker, read="").start("run", RunAbout("orders", 0, WHERE, 4, "", "steps"), keeps_keys=True)
    assert market.run("runs", "show", "orders").stderr.startswith(f"{begins}on the same input goes on from here;")


def test_a_run_is_shown_for_programs(market: Market, run: StoredRun) -> None:
    found = market.document("runs", "show", "orders")
    assert (found["kind"], found["done"], found["partitions_done"]) == ("run", 72_000, 1)
    assert all(one.pop("touched_at_ms") > run.started_ms for one in found["partitions"])
    assert found["partitions"] == [
        {"pass": 0, "partition": 0, "done": 71_900, "failed": 3, "in_work": 0, "is_done": True},
        {"pass": 0, "partition": 1, "done": 100, "failed": 1, "in_work": 50, "is_done": False},
        {"pass": 1, "partition": 0, "done": 0, "failed": 0, "in_work": 1, "is_done": False},
    ]


def test_a_partition_that_was_left_is_not_done(market: Market, run: StoredRun) -> None:
    """As the driver of a job that failed leaves what was in work."""
    run.leave(field_of(0, 1))
    found = market.document("runs", "show", "orders")
    assert (found["partitions_done"], found["in_work"]) == (1, 1)


def test_an_empty_partition_is_done_and_was_never_touched(market: Market) -> None:
    run = StoredRun(market.acker, partitions=1)
    run.begin(Place(field_of(0, 0), 0, 0), 0, 0)
    found = market.document("runs", "show", "orders")
    assert (found["partitions_done"], found["touched_at_ms"]) == (1, None)
    assert "] 100%" in market.run("runs", "show", "orders").stdout


def test_many_partitions_are_cut_for_people_and_that_is_said(market: Market) -> None:
    run = StoredRun(market.acker, partitions=60)
    for partition in range(60):
        run.work(partition, 0, 1)
    with run.driven():
        ran = market.run("runs", "show", "orders")
        assert (len(ran.stdout.partition("\n\n")[2].splitlines()), ran.stderr) == (51, "10 more; --all shows them.\n")
        assert len(market.text("runs", "show", "orders", "--all").partition("\n\n")[2].splitlines()) == 61
    assert len(market.document("runs", "show", "orders")["partitions"]) == 60


# -- what is not there, or not as it should be -----------------------------------------------------------------------


@pytest.mark.parametrize("command", [["show", "oders"], ["drop", "oders", "--yes"], ["list", "--spout", "oders"]])
def test_an_unknown_spout_is_one_sentence(market: Market, command: list[str]) -> None:
    ran = market.run("runs", *command)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (4, "", 1)
    assert "has no spout 'oders'" in ran.stderr
    assert "oders" not in market.acker.known_spouts(), "and it does not become known by that"


@pytest.mark.parametrize("command", [["show", "orders"], ["drop", "orders", "--yes"]])
def test_a_spout_without_a_run_is_one_sentence(market: Market, command: list[str]) -> None:
    ran = market.run("runs", *command)
    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr == (
        "Error: Spout 'orders' has no run under way or unfinished: `redis-acker runs list` lists them.\n"
    )


JUNK = {
    "a partition": ("0:1", b"\xff what?"),
    "a field": ("weather", b"fine"),
    "about": ("about", b"{}"),
    "something deep": ("about", b"[" * 100_000),
    "another version": ("about", b'{"format": 2}'),
}


@pytest.mark.parametrize("junk", JUNK)
def test_what_cannot_be_read_is_one_sentence_and_hides_no_other_run(market: Market, run: StoredRun, junk: str) -> None:
    StoredRun(market.acker, "payments")
    key = market.acker.shards.keys[0].progress(market.acker.spout_number("orders"))
    client: Any = market.acker.servers.client(0)
    client.hset(key, *JUNK[junk])
    for args in (["list"], ["list", "--json"], ["show", "orders"], ["show", "orders", "--json"]):
        ran = market.run("runs", *args)
        assert (ran.returncode, ran.stderr.count("\n")) == (1, 1), ran.stderr
        assert "another version" in ran.stderr or "this version cannot read" in ran.stderr
        assert "`redis-acker runs drop`" in ran.stderr
        assert ("payments" in ran.stdout, "orders" in ran.stdout) == ("list" in args, False)
    dropped = market.document("runs", "drop", "orders", "--yes")
    assert dropped == {"schema": 1, "kind": "run_dropped", "spout": "orders", "done": None, "in_work": None}
    assert not client.exists(key)


def test_a_key_of_another_type_is_one_sentence(market: Market, run: StoredRun) -> None:
    key = market.acker.shards.keys[0].progress(market.acker.spout_number("orders"))
    client: Any = market.acker.servers.client(0)
    client.delete(key)
    client.set(key, "of another program")
    for args in (["list"], ["show", "orders"], ["drop", "orders", "--yes"]):
        ran = market.run("runs", *args)
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
        assert "holds another type of value" in ran.stderr
