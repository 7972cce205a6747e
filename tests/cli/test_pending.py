"""`redis-acker pending`: pending roots, for people and for programs."""

import os
import subprocess
import sys

import pytest

from redis_acker import Acker, new_edges
from tests.cli.looking import COUNT, Market
from tests.cli.runs import SCRIPT


def test_people_see_a_table_of_pending_roots(market: Market) -> None:
    head, *rows = market.text("pending").splitlines()

    assert head.split() == ["root", "spout", "message", "id", "attempt", "age", "shard", "bucket"]
    assert len(rows) == COUNT - 7 + 3
    assert rows[0].split()[:4] == [f"0x{int(market.roots[7]):016x}", "orders", "orders-7", "1"]
    assert len({len(row) for row in rows}) == 1  # in columns


def test_programs_get_one_object_for_each_root(market: Market) -> None:
    found = market.lines("pending", "--spout", "orders")

    assert [int(one["root"], 16) for one in found] == market.roots[7:].tolist()
    first = found[0]
    assert first.pop("age_ms") >= 0
    assert first == {
        "schema": 1,
        "kind": "pending",
        "root": f"0x{int(market.roots[7]):016x}",
        "spout": "orders",
        "message_id": "orders-7",
        "attempt": 1,
        "shard": 0,
        "bucket": 0,
    }


def test_the_oldest_come_first_and_a_line_says_how_many_more_there_are(market: Market) -> None:
    ran = market.run("pending", "--limit", "2")

    assert [line.split()[2] for line in ran.stdout.splitlines()[1:]] == ["orders-7", "orders-8"]
    assert (ran.returncode, ran.stderr) == (0, "14 more; --all shows them.\n")


def test_people_get_fifty_unless_they_ask_for_all(market: Market) -> None:
    market.start("clicks", 200)

    ran = market.run("pending", "--spout", "clicks")
    assert (len(ran.stdout.splitlines()), ran.stderr) == (51, "150 more; --all shows them.\n")
    assert len(market.text("pending", "--spout", "clicks", "--all").splitlines()) == 201
    assert len(market.lines("pending", "--spout", "clicks")) == 200


def test_filters_by_age_and_shard(market: Market) -> None:
    assert market.lines("pending", "--older-than", "1h") == []
    assert len(market.lines("pending", "--older-than", "0", "--shard", "0")) == 16
    ran = market.run("pending", "--older-than", "2d")
    assert (ran.returncode, ran.stderr) == (0, "No such root is pending.\n")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--spout", "nobody"], 4, "has no spout 'nobody': it has ['orders', 'payments']."),
        (["--shard", "1"], 2, "has shards 0 to 0, not 1."),
        (["--older-than", "soon"], 2, "'soon' is not a duration: use for example 90s, 5m, 2h or plain seconds."),
        (["--all", "--limit", "3"], 2, "--all means no limit"),
        (["--namespace", "no-such"], 4, "Namespace 'no-such' does not exist"),
    ],
)
def test_what_is_not_there_is_one_line_with_its_exit_code(
    market: Market, args: list[str], code: int, said: str
) -> None:
    ran = market.run("pending", *args)

    assert (ran.returncode, ran.stdout) == (code, "")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("message_id", "text", "in_json"),
    [
        ("[red]x[/red]", "[red]x[/red]", "[red]x[/red]"),
        ("a\x1b]0;title\x07\nb", "a\\x1b]0;title\\x07\\nb", "a\x1b]0;title\x07\nb"),
        ("näher\u202e", "näher\\u202e", "näher\u202e"),
        (b"\xff\x00", "b'\\xff\\x00'", {"base64": "/wA="}),
        (-(1 << 63), str(-(1 << 63)), -(1 << 63)),
    ],
    ids=["markup", "control", "direction", "bytes", "integer"],
)
def test_message_ids_are_shown_as_they_are_and_nothing_in_them_is_obeyed(
    market: Market, message_id: object, text: str, in_json: object
) -> None:
    market.start("odd", 1, message_ids=[message_id])

    assert text in market.text("pending", "--spout", "odd").splitlines()[1]
    assert market.lines("pending", "--spout", "odd")[0]["message_id"] == in_json


def test_a_reader_that_goes_away_ends_it_silently(market: Market) -> None:
    market.start("many", 20_000)
    command = f"{SCRIPT} pending --json -n {market.namespace} --url {market.url}"

    ran = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, timeout=60
    )

    assert ran.stdout.splitlines()[1] == "141"
    assert ran.stderr == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_is_gone_before_the_first_line_ends_it_silently(market: Market, unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [SCRIPT, "pending", "-n", market.namespace, "--url", market.url],
        stdout=writing,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        timeout=60,
    )
    os.close(writing)

    assert (ran.returncode, ran.stderr) == (141, b"")


@pytest.mark.slow
def test_a_long_listing_needs_no_more_memory_than_a_short_one(market: Market) -> None:
    def peak_kb(count: int) -> int:
        namespace = f"{market.namespace}-{count}"
        with Acker(market.url, namespace=namespace, timeout_ms=600_000) as acker:
            acker.init(acker.allocate("orders", count), new_edges(count))
        measured = (
            "import resource, subprocess, sys\n"
            "listed = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)\n"
            "print(sum(1 for _ in listed.stdout), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss\n"
            "      if listed.wait() == 0 else None)\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", measured, SCRIPT, "pending", "--json", "-n", namespace, "--url", market.url],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        listed, kilobytes = map(int, ran.stdout.split())
        assert listed == count
        return kilobytes

    # Each root as an object would take more than 100 bytes, so 20,000 KB.
    assert peak_kb(200_000) < peak_kb(1_000) + 10_000
