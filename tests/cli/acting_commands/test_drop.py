"""`redis-acker runs drop`: forgets how far a run has come, if nobody counts on it."""

from __future__ import annotations

import pytest

from tests.cli.acting_commands.shop import Shop, lines
from tests.cli.stored_runs import StoredRun


@pytest.fixture
def run(shop: Shop) -> StoredRun:
    found = StoredRun(shop.acker)
    found.work(0, 1500, 30)
    return found


def test_dropping_says_what_it_means_and_asks_first(shop: Shop, run: StoredRun) -> None:
    meaning = "the next run starts from the beginning, and 30 roots in progress will time out."
    ran = shop.run("runs", "drop", "orders", stdin="n\n")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(
        f"If you drop it, {meaning}\nDrop the run of spout orders (1,500 messages done)? [y/N]: "
    )
    assert shop.run("runs", "drop", "orders").returncode == 1, "nobody is there to be asked"
    assert shop.run("runs", "drop", "orders", "--json").returncode == 2
    assert run.read()[0] is not None
    ran = shop.run("runs", "drop", "orders", stdin="y\n")
    assert (ran.returncode, ran.stdout) == (0, f"The run of spout orders was dropped: {meaning}\n")
    assert run.read()[0] is None


def test_yes_is_not_asked_and_programs_are_told_what_was_dropped(shop: Shop, run: StoredRun) -> None:
    [found] = lines(shop.succeed("runs", "drop", "orders", "--yes", "--json"))
    assert found == {"schema": 1, "kind": "run_dropped", "spout": "orders", "done": 1500, "in_work": 30}
    assert shop.run("runs", "drop", "orders", "--yes").returncode == 4


def test_a_run_with_nothing_in_work_has_nothing_that_times_out(shop: Shop) -> None:
    StoredRun(shop.acker).finish(0, 1)
    assert shop.succeed("runs", "drop", "orders", "--yes") == (
        "The run of spout orders was dropped: the next run starts from the beginning.\n"
    )


@pytest.mark.parametrize("junk", [False, True], ids=["readable", "unreadable"])
def test_a_run_whose_driver_is_alive_is_not_dropped(shop: Shop, run: StoredRun, junk: bool) -> None:
    if junk:
        shop.acker.shards.progress(shop.acker.spout_number("orders")).put({"junk": "junk"})
    with run.driven():
        ran = shop.run("runs", "drop", "orders", "--yes")
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
        assert ran.stderr.startswith("Error: The run of spout 'orders' is under way, driven by ")
        assert "stop that driver first. If it was killed, wait ten seconds and try again." in ran.stderr
        assert shop.acker.shards.progress(shop.acker.spout_number("orders")).exists()
    shop.succeed("runs", "drop", "orders", "--yes")


def test_a_driver_that_starts_while_it_asks_keeps_its_run(shop: Shop, run: StoredRun) -> None:
    with shop.started("runs", "drop", "orders", stdin=-1) as process:
        assert process.stderr is not None
        assert process.stderr.read(len("If you drop it")) == "If you drop it"
        with run.driven():
            _, said = process.communicate("y\n", timeout=60)
    assert (process.returncode, "is under way, driven by" in said) == (1, True)
    assert run.read()[0] is not None


def test_the_lease_is_free_after_a_drop_and_other_runs_stay(shop: Shop, run: StoredRun) -> None:
    other = StoredRun(shop.acker, "payments")
    shop.succeed("runs", "drop", "orders", "--yes")
    assert other.read()[0] is not None
    with run.driven():
        pass
