"""`redis-acker drain`: takes failures out of the store, each once, none lost."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from redis_acker.store.lease import Lease
from redis_acker.store.streams import HISTORY
from tests.cli.acting_commands.conftest import NewShop
from tests.cli.acting_commands.shop import SPOUT, Shop, ids_of, lines, numbered
from tests.cli.runs import redis_acker_on_terminal
from tests.waiting import wait_until


def test_a_line_says_all_that_a_replay_needs(shop: Shop, out: Path) -> None:
    [root] = shop.start_failed(["m0"], attempts=3, error="zwölf\n").tolist()
    assert shop.succeed("drain", "--out", str(out)) == f"1 root was written to {out} (1 failed).\n"
    [line] = lines(out.read_text())
    assert line.pop("age_ms") >= 0
    assert line.pop("at_ms") > 1_700_000_000_000
    assert line.pop("entry").partition("-")[0].isdigit()
    assert HISTORY.fullmatch(line.pop("history"))
    assert line.pop("shard") in (0, 1)
    assert line == {
        "schema": 1,
        "kind": "failure",
        "namespace": shop.namespace,
        "spout": SPOUT,
        "message_id": "m0",
        "root": f"0x{root:016x}",
        "attempt": 3,
        "reason": "failed",
        "component": "parse",
        "error": "zwölf\n",
        "fatal": False,
    }
    assert shop.entries() == shop.withdrawn() == 0


def test_ids_keep_their_type(shop: Shop) -> None:
    shop.start_failed([7], spout="numbers")
    shop.start_failed(["7"], spout="texts")
    shop.start_failed([b"\xff7"], spout="bytes")
    assert sorted(ids_of(shop.succeed("drain")), key=str) == [7, "7", {"base64": "/zc="}]


@pytest.mark.parametrize("kind", ["redis-7.0", "valkey-9.1", "redis-6.2", "cluster"])
def test_what_is_due_times_out_first(new_shop: NewShop, kind: str) -> None:
    shop = new_shop(kind, timeout_ms=300)
    shop.start(numbered(3))
    found = wait_until(lambda: shop.succeed("drain"))
    assert {line["reason"] for line in lines(found)} == {"timeout"}
    assert sorted(ids_of(found)) == numbered(3)
    assert shop.succeed("replay", stdin=found) == "3 messages go back to the source.\n"
    assert shop.requested() == dict.fromkeys(numbered(3), 1)
    assert shop.entries() == shop.withdrawn() == 0


def test_a_dry_run_shows_all_and_takes_nothing(shop: Shop, out: Path) -> None:
    shop.start_failed(numbered(20))
    before = shop.entries()
    ran = shop.run("drain", "--dry-run")
    assert sorted(ids_of(ran.stdout)) == sorted(numbered(20))
    assert ran.stderr == "20 roots would be drained. Nothing was taken.\n"
    assert shop.succeed("drain", "--dry-run", "--out", str(out)).startswith("20 roots would be written to")
    assert not out.exists()
    some = ids_of(shop.succeed("drain", "--dry-run", "--limit", "3"))
    assert (shop.entries(), shop.withdrawn()) == (before, 0)
    assert 3 <= len(some) < 20
    assert some == ids_of(shop.succeed("drain", "--limit", "3")), "what a drain would take"


def test_a_limit_leaves_the_rest_and_does_not_split_what_failed_together(shop: Shop, out: Path) -> None:
    for start in range(0, 20, 5):
        together = range(start, start + 5)
        shop.start_failed([f"m{i}" for i in together], attempts=[1 + i % 3 for i in together])
    for expected in (10, 20):
        shop.succeed("drain", "--out", str(out), "--limit", "7")
        assert len(lines(out.read_text())) == expected
    found = {line["message_id"]: line["attempt"] for line in lines(out.read_text())}
    assert found == {f"m{i}": 1 + i % 3 for i in range(20)}
    assert shop.succeed("drain", "--out", str(out)) == "There is nothing to drain.\n"


def test_a_rate_spreads_it_over_time_without_losing_any(shop: Shop, out: Path) -> None:
    shop.start_failed(numbered(20))
    document = json.loads(shop.succeed("drain", "--out", str(out), "--rate", "40", "--json"))
    assert (document["kind"], document["drained"], document["by_reason"]) == ("drained", 20, {"failed": 20})
    assert sorted(ids_of(out.read_text())) == sorted(numbered(20))


def test_filters_leave_the_others_in_the_store(shop: Shop) -> None:
    shop.start_failed(["old"], spout="a")
    shop.start_failed(["new"], spout="b")
    assert shop.succeed("drain", "--reason", "timeout") == ""
    assert shop.succeed("drain", "--older-than", "1h") == ""
    assert ids_of(shop.succeed("drain", "--spout", "b", "--reason", "failed", "--older-than", "0")) == ["new"]
    assert (shop.entries("a"), shop.entries("b")) == (1, 0)


def test_lines_on_standard_output_are_only_lent_until_a_replay_has_read_them(shop: Shop) -> None:
    shop.start_failed(numbered(10))
    first = shop.run("drain")
    assert sorted(ids_of(first.stdout)) == sorted(numbered(10))
    assert first.stderr == "10 roots are lent (10 failed): pipe the lines into `redis-acker replay`.\n"
    assert (shop.entries(), shop.withdrawn()) != (0, 0)
    assert sorted(ids_of(shop.succeed("drain"))) == sorted(numbered(10)), "nobody has read the lines"
    some = "".join(f"{line}\n" for line in first.stdout.splitlines()[:4])
    shop.succeed("replay", stdin=some)
    again = shop.succeed("drain")
    assert sorted(ids_of(again)) == sorted(set(numbered(10)) - set(ids_of(some)))
    shop.succeed("replay", stdin=again)
    assert (shop.entries(), shop.withdrawn()) == (0, 0)
    assert shop.run("drain").stderr == "There is nothing to drain.\n"


def test_a_reader_that_goes_away_loses_nothing(shop: Shop) -> None:
    shop.start_failed(numbered(2000))
    with shop.started("drain") as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        process.stdout = None
    assert len(lines(shop.succeed("drain"))) == 2000


def test_progress_is_shown_on_a_terminal(shop: Shop, out: Path) -> None:
    shop.start_failed(numbered(20))
    place = ("--url", shop.url, "--namespace", shop.namespace)
    with redis_acker_on_terminal("drain", "--out", str(out), "--rate", "20", *place) as (process, terminal):
        terminal.read_to_the_end()
    assert (process.returncode, "draining" in terminal.printed) == (0, True)


# -- two at once ---------------------------------------------------------------------------------------------------


def test_two_drains_at_once_share_the_failures(shop: Shop, tmp_path: Path) -> None:
    for _ in range(20):
        shop.start_failed(numbered(50))
    files = [tmp_path / f"{number}.jsonl" for number in range(3)]
    threads = [
        threading.Thread(target=shop.succeed, args=("drain", "--out", str(file), "--rate", "1000")) for file in files
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    roots = [line["root"] for file in files for line in lines(file.read_text())]
    assert len(roots) == len(set(roots)) == 1000


def test_a_file_that_another_drain_writes_is_refused(shop: Shop, out: Path) -> None:
    shop.start_failed(numbered(20))
    with shop.started("drain", "--out", str(out), "--rate", "2"):
        wait_until(lambda: out.exists() and out.stat().st_size > 0, 20)
        ran = shop.run("drain", "--out", str(out))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"Error: {out} is being written by another drain: wait for it, or name another file.\n"


def test_what_another_drain_holds_is_named_and_taken_only_when_told_to(shop: Shop, out: Path, tmp_path: Path) -> None:
    shop.start_failed(numbered(8)[:4])
    shop.start_failed(numbered(8)[4:])
    with shop.started("drain", "--out", str(out), "--rate", "4") as process:
        wait_until(lambda: out.exists() and len(out.read_text().splitlines()) == 4 and shop.withdrawn() == 1, 20)
        process.kill()
        process.wait()
    other = tmp_path / "other.jsonl"
    ran = shop.run("drain", "--out", str(other))
    assert ran.stderr.startswith(f"Skipped: 4 roots are held by a drain to {out} on ")
    assert "--take-over takes them" in ran.stderr
    assert len(lines(other.read_text())) == 0
    shop.succeed("drain", "--out", str(other), "--take-over")
    assert sorted(ids_of(out.read_text() + other.read_text())) == sorted(numbered(8))


def test_the_failures_of_a_spout_that_is_driven_are_left_to_its_driver(shop: Shop) -> None:
    shop.start_failed(["mine"])
    shop.start_failed(["other"], spout="other")
    lease = Lease(shop.acker, SPOUT, for_ms=60_000)
    lease.renew()
    ran = shop.run("drain", "--spout", SPOUT)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"Error: Spout {SPOUT!r} is driven by ")
    assert "replays its own failures: stop that driver, or use --force" in ran.stderr
    ran = shop.run("drain")
    assert (ran.returncode, ids_of(ran.stdout)) == (0, ["other"])
    assert f"Skipped: Spout {SPOUT!r} is driven by" in ran.stderr
    # What the driver has read is its own, also then.
    shop.start_failed(["unread"])
    with shop.acker.failures(SPOUT, consumer="driver") as failures:
        assert failures.read()
        shop.start_failed(["later"])
        assert ids_of(shop.succeed("drain", "--spout", SPOUT, "--force")) == ["later"]
        lease.give_up()
        assert sorted(ids_of(shop.succeed("drain"))) == ["later", "mine", "other", "unread"]


# -- mistakes ------------------------------------------------------------------------------------------------------


def test_an_unknown_spout_or_namespace_is_not_found_and_not_made(shop: Shop) -> None:
    shop.start_failed(numbered(1))
    ran = shop.run("drain", "--spout", "oders")
    assert (ran.returncode, ran.stderr) == (
        4,
        f"Error: Namespace {shop.namespace!r} has no spout 'oders': it has ['orders'].\n",
    )
    assert shop.run("drain", "--namespace", "nowhere").returncode == 4
    assert list(shop.acker.spout_names().values()) == [SPOUT]


@pytest.mark.parametrize("args", [("--limit", "0"), ("--rate", "0"), ("--reason", "bad"), ("--older-than", "soon")])
def test_an_option_that_makes_no_sense_is_explained(shop: Shop, args: tuple[str, str]) -> None:
    ran = shop.run("drain", *args)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Error: Invalid value for" in ran.stderr
