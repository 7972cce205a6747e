"""`redis-acker stats` and `top`: the namespace at one moment, and live."""

import json
import os
import pty
import re
import signal
import subprocess
import time

import pytest

from redis_acker import new_edges
from redis_acker.retries.book import FailedAttempt, Retry, RetryBook
from redis_acker.store.tracked_streams import TrackedStreamRecord, TrackedStreams
from tests.cli.looking import Market
from tests.cli.runs import PATIENCE_S, SCRIPT, Terminal, killed_by_an_error


def tables(text: str) -> dict[str, dict[str, str]]:
    """The rows of all tables, by their first word, with their cells by column."""
    found: dict[str, dict[str, str]] = {}
    for part in text.strip().split("\n\n")[1:]:
        head, *rows = part.strip().splitlines()
        names = re.split(r"\s{2,}", head.strip())
        for row in rows:
            cells = re.split(r"\s{2,}", row.strip())
            found.setdefault(cells[0], {}).update(zip(names, cells, strict=True))
    return found


def test_people_see_counters_rates_ages_and_memory(market: Market) -> None:
    text = market.text("stats", "--interval", "10ms")

    assert text.startswith(f"{market.namespace}: 16 pending, timeout 10m 0s, 3 buckets, 1 shard\nThe oldest root is ")
    assert re.search(r"; the next rotation is due in (5m 0s|4m \d+s)\.$", text.splitlines()[1])
    rows = tables(text)
    orders = rows["orders"]
    assert [orders[name] for name in ("pending", "init", "completed", "failed", "timeout")] == [
        "13",
        "20",
        "5",
        "2",
        "0",
    ]
    assert [orders[name] for name in ("init/s", "retries", "dead", "unread")] == ["0", "0", "0", "2"]
    assert rows["payments"]["pending"] == "3"
    assert rows["0"]["pending"] == "16"
    server = rows["0"]["server"]
    assert market.url.startswith(f"redis://{server}/")
    assert rows[server]["version"].startswith("Redis ")
    assert max(map(len, text.splitlines())) <= 80


def test_a_quiet_stream_is_shown_beside_many_busy_spouts(market: Market) -> None:
    for i in range(30):
        market.acker.init(market.acker.allocate(f"s{i}", 2), new_edges(2))
    market.acker.allocate("returns")
    TrackedStreams(market.acker).put("returns", TrackedStreamRecord("query", "id", 41))
    row = tables(market.text("stats", "--interval", "10ms"))["returns"]
    assert row == {"tracked stream": "returns", "micro-batches": "42", "driver": "gone"}


def test_programs_get_one_object(market: Market) -> None:
    RetryBook(market.acker, "orders").note({"x": Retry([FailedAttempt(1, "failed", "", "", 1)], 0)})
    found = market.document("stats", "--interval", "10ms")

    assert (found["kind"], found["namespace"], found["pending"]) == ("stats", market.namespace, 16)
    assert found["settings"]["timeout_ms"] == 600_000
    assert found["oldest_ms"] >= 0
    assert found["is_oldest_exact"] is True
    assert found["rotation_overdue_ms"] == 0
    orders, payments = sorted(found["spouts"], key=lambda one: str(one["name"]))
    assert (orders["name"], orders["initialised"], orders["failed"], orders["pending"]) == ("orders", 20, 2, 13)
    assert (orders["unread_completions"], orders["unread_failures"], orders["retries"]) == (1, 1, 1)
    assert orders["per_second"] == {"initialised": 0.0, "completed": 0.0, "failed": 0.0, "timeout": 0.0}
    assert payments["pending"] == 3
    [shard], [server] = found["shards"], found["servers"]
    assert (shard["shard"], shard["pending"], shard["server"]) == (0, 16, server["address"])
    assert server["used_memory"] > 0
    assert server["error"] is None


def test_rates_are_measured_over_the_interval(market: Market) -> None:
    command = [SCRIPT, "stats", "--json", "--interval", "2s", "--url", market.url, "-n", market.namespace]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stats:
        # Until it ends: however long its start takes, some of them fall into its interval.
        while stats.poll() is None:
            roots, edges = market.acker.allocate("clicks", 10), new_edges(10)
            market.acker.init(roots, edges)
            market.acker.ack(roots, edges)
        assert stats.stdout
        found = json.loads(stats.stdout.read())

    [clicks] = [one for one in found["spouts"] if one["name"] == "clicks"]
    assert clicks["per_second"]["initialised"] > 0
    assert clicks["per_second"]["completed"] > 0
    assert clicks["per_second"]["failed"] == 0


def test_a_rotation_that_is_overdue_is_said_in_words(market: Market) -> None:
    [keys] = market.acker.shards.keys
    client = market.acker.servers.client(0)
    client.hset(keys.meta, "turned_ms", int(time.time() * 1000) - 3_600_000)

    assert re.search("rotation is 55m [0-9]+s overdue: is a rotator running", market.text("stats", "--interval", "1ms"))


def test_one_frame_of_top_is_what_stats_shows(market: Market) -> None:
    once = market.text("top", "--once", "--interval", "100ms")

    assert tables(once)["orders"]["pending"] == tables(market.text("stats", "--interval", "1ms"))["orders"]["pending"]
    assert market.document("top", "--once", "--interval", "100ms")["kind"] == "stats"


def test_in_a_pipe_top_prints_a_frame_at_every_interval_until_ctrl_c(market: Market) -> None:
    command = [SCRIPT, "top", "--json", "--interval", "100ms", "--url", market.url, "-n", market.namespace]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as top:
        assert top.stdout
        assert top.stderr
        frames = [json.loads(top.stdout.readline()) for _ in range(3)]
        top.send_signal(signal.SIGINT)
        with killed_by_an_error(top):
            _, left = top.communicate(timeout=PATIENCE_S)

    assert [one["pending"] for one in frames] == [16, 16, 16]
    assert (top.returncode, left) == (0, "")


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_on_a_terminal_top_is_live_and_ends_with_q_or_ctrl_c(market: Market, key: str) -> None:
    screen, keyboard = pty.openpty()
    command = [SCRIPT, "top", "--interval", "100ms", "--url", market.url, "-n", market.namespace]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "30"}
    with (
        subprocess.Popen(
            command, stdin=keyboard, stdout=keyboard, stderr=keyboard, env=environment, start_new_session=True
        ) as top,
        killed_by_an_error(top),
    ):
        os.close(keyboard)
        terminal = Terminal(screen)
        terminal.read_until("q quits")
        if key == "q":
            os.write(screen, b"q")
        else:
            top.send_signal(signal.SIGINT)
        terminal.read_to_the_end()
    os.close(screen)

    assert top.returncode == 0
    assert "16 pending" in terminal.printed
    assert terminal.printed.rstrip().endswith("\x1b[?1049l")  # the screen is as it was before
    assert "Traceback" not in terminal.printed
