"""The demo is a real Spark job, and balances its books."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from dataclasses import replace

import pytest

from spark_integration.demo import Balance
from tests.cli.runs import SCRIPT, killed_by_an_error, redis_acker
from tests.waiting import wait_until

#: Starting Spark takes seconds, and many seconds on a busy machine.
TIMEOUT_S = 300.0

#: Without these the demo starts a server of its own.
ALONE = {name: value for name, value in os.environ.items() if not name.startswith("REDIS_ACKER_")}


@pytest.mark.full
def test_every_message_is_completed_or_dead_and_every_word_is_counted() -> None:
    ran = redis_acker("demo", "--messages", "2000", "--json", timeout_s=TIMEOUT_S)

    assert (ran.returncode, ran.stderr) == (0, "")
    books = json.loads(ran.stdout)
    assert (books["kind"], books["balanced"]) == ("demo", True)
    assert (books["messages"], books["completed"], books["dead"], books["failed_attempts"]) == (2000, 1980, 20, 60)
    assert (books["pending"], books["lost"]) == (0, 0)
    assert books["words"] == books["expected_words"] == 19_800
    killed = books["killed"]
    assert killed["completed"] == killed["delivered"] == 2000
    assert 0 < killed["completed_before"] < 2000


@pytest.mark.full
def test_what_is_kept_can_be_looked_at_with_the_commands_that_it_names() -> None:
    """As a new user would: read what the demo says, and type that into a second terminal."""
    demo = subprocess.Popen([SCRIPT, "demo", "--messages", "500", "--keep"], env=ALONE, stdout=subprocess.PIPE)
    with demo, killed_by_an_error(demo):
        assert demo.stdout is not None
        lines = []
        for line in iter(demo.stdout.readline, b""):
            lines.append(line.decode())
            if line.startswith(b"Ctrl-C"):
                break
        text = "".join(lines)
        assert "The books balance." in text
        assert max(len(line) for line in text.partition("\nSpout ")[0].splitlines()) <= 80
        [url] = set(re.findall(r"--url (\S+)", text))
        options = ("--url", url, "-n", "demo")
        try:
            wait_until(lambda: "card declined" in redis_acker("drain", "--dry-run", *options).stdout, 60)
            assert "order-" in redis_acker("pending", *options).stdout
            assert "orders" in redis_acker("stats", *options).stdout
            assert "cannot split" in redis_acker("dead", "list", *options).stdout
            root = json.loads(redis_acker("pending", "--json", "--limit", "1", *options).stdout)["root"]
            assert redis_acker("inspect", root, *options).returncode == 0
            [address] = re.findall(r"In a browser: (http://127\.0\.0\.1:\d+/)", text)
            with urllib.request.urlopen(address, timeout=30) as page:
                assert b"<title>redis-acker: demo</title>" in page.read()
        finally:
            demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
    assert redis_acker("health", *options).returncode == 3  # its server has ended with it


def test_keep_and_json_do_not_go_together() -> None:
    ran = redis_acker("demo", "--keep", "--json")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("Error: --keep is for people: leave out --json.")


def test_without_java_the_demo_says_what_to_install() -> None:
    ran = redis_acker("demo", JAVA_HOME="/nowhere")

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("Error: The demo needs Java 17 or newer for Spark, and there is none: install it")


@pytest.mark.parametrize("fault", [{"completed": 9}, {"pending": 1}, {"lost": 1}, {"words": 99}], ids=str)
def test_books_with_a_fault_do_not_balance(fault: dict[str, int]) -> None:
    right = Balance(
        messages=15,
        completed=10,
        dead=5,
        failed_attempts=15,
        pending=0,
        lost=0,
        words=100,
        expected_words=100,
        top=[],
        seconds=1.0,
    )

    assert right.balanced
    assert not replace(right, **fault).balanced  # type: ignore[arg-type]
