"""Every reader of a number, a line or a foreign text has its bound, and says one clear sentence."""

from __future__ import annotations

import json
import logging
import os
import subprocess

import pytest

from redis_acker import DeadLetter, RetryPolicy
from redis_acker.driver.observer import Observer, Reporter
from redis_acker.errors import escaped, traceback_of
from redis_acker.retries.book import FailedAttempt
from tests.cli.acting_commands.shop import SPOUT, Shop, lines, numbered
from tests.cli.runs import SCRIPT, redis_acker

DIGITS = "9" * 5_000
LONG = "9" * 400
FOREIGN = "no\x1b[31m\x07 such\n\u202espout"


def assert_one_sentence(ran: subprocess.CompletedProcess[str], code: int, text: str) -> None:
    assert (ran.returncode, ran.stdout) == (code, "")
    assert ran.stderr.startswith("Error: ")
    assert ran.stderr.count("\n") == 1
    assert len(ran.stderr) < 700
    assert text in ran.stderr
    assert ran.stderr[:-1].isprintable()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("inspect", DIGITS), "does not fit in 64 bits"),
        (("inspect", f"0x{DIGITS}"), "does not fit in 64 bits"),
        (("fail", "--", f"-{DIGITS}"), "does not fit in 64 bits"),
        (("pending", "--older-than", f"{LONG}s"), "is not a duration"),
        (("pending", "--older-than", "9999d"), "is not a duration"),
        (("stats", "--interval", LONG), "is not a duration"),
        (("stats", "--interval", f"0.{LONG}"), "is not a duration"),
        (("pending", "--limit", "9" * 30), "is not in the range"),
        (("dead", "list", "--limit", "9" * 30), "is not in the range"),
        (("drain", "--limit", "9" * 30), "is not in the range"),
        (("drain", "--rate", "nan"), "nan is not a number"),
        (("drain", "--rate", "1e400"), "is not in the range"),
    ],
)
def test_a_number_without_end_is_refused_in_one_sentence(args: tuple[str, ...], text: str) -> None:
    assert_one_sentence(redis_acker(*args, REDIS_ACKER_URL="redis://127.0.0.1:1"), 2, text)


@pytest.mark.parametrize("command", ["stats", "health", "ready", "doctor", "drain"])
def test_a_namespace_that_is_no_name_is_refused_by_every_command(command: str) -> None:
    for name in ("\udc80", "a b", "x" * 65, ""):
        assert_one_sentence(
            redis_acker(command, "-n", name, "--url", "redis://127.0.0.1:1"), 2, "A namespace is 1 to 64"
        )


@pytest.mark.parametrize("text", [DIGITS, f"i:{DIGITS}", "--5", "i:--5", "\udc80", "s:\udc80"])
def test_a_message_id_without_end_names_no_letter(shop: Shop, text: str) -> None:
    shop.start(["m"])
    ran = shop.run("dead", "show", "--", text)
    assert ran.returncode in (2, 4)
    assert_one_sentence(ran, ran.returncode, "message")


def test_a_bad_line_is_reported_and_the_others_are_replayed(shop: Shop) -> None:
    shop.start_failed(numbered(3))
    good = lines(shop.succeed("drain"))
    bad: list[str] = [
        "[" * 50_000,
        '{"a":' * 50_000,
        json.dumps({**good[0], "root": int("9" * 400)}),
        json.dumps(good[0]).replace(f'"{good[0]["root"]}"', DIGITS),
        json.dumps({**good[0], "shard": 99}),
        json.dumps({**good[0], "shard": -1}),
        json.dumps({**good[0], "at_ms": int("9" * 400)}),
        json.dumps({**good[0], "message_id": int("9" * 400)}),
        json.dumps({**good[0], "spout": FOREIGN}),
        json.dumps({**good[0], "spout": "\ud800"}),
        json.dumps({**good[0], "error": "x" * 200_000}),
    ]
    text = "\n".join([json.dumps(good[0]), *bad, json.dumps(good[1]), json.dumps(good[2])])
    ran = shop.run("replay", stdin=text)
    assert ran.returncode == 1
    assert ran.stdout == f"3 messages go back to the source. {len(bad)} lines could not be used.\n"
    assert [line.split(" of ")[0] for line in ran.stderr.splitlines()] == [f"Line {i + 2}" for i in range(len(bad))]
    assert max(map(len, ran.stderr.splitlines())) < 400
    assert ran.stderr.replace("\n", "").isprintable()
    assert len(shop.requested()) == 3


def test_foreign_texts_are_escaped_in_errors(shop: Shop) -> None:
    shop.start_failed(["m"])
    assert_one_sentence(shop.run("drain", "--spout", FOREIGN), 4, "has no spout")
    key = shop.acker.shards.keys[0].lease(shop.acker.spout_number(SPOUT))
    shop.acker.shards.ask(0, "SET", key, b"a driver\x1b]0;x\x07\xff", "PX", 60_000)
    assert_one_sentence(shop.run("drain", "--spout", SPOUT), 1, "a driver\\x1b]0;x\\x07")


def test_foreign_texts_are_escaped_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter(SPOUT, Observer())
    history = [FailedAttempt(RetryPolicy().max_attempts, "failed", "parse\x07", FOREIGN, 1)]
    with caplog.at_level(logging.ERROR):
        reporter.dead(DeadLetter("m", SPOUT, history, False, None))
    assert escaped(FOREIGN) in caplog.text
    assert caplog.records[0].message.isprintable()
    assert traceback_of(ValueError(FOREIGN)).replace("\n", "").isprintable()


@pytest.mark.parametrize("url", ["u:s3cret@host", "redis://host?PASSWORD=s3cret", "redis://u:x\n%0as3cret@h:p"])
def test_a_url_that_is_none_is_not_shown(url: str) -> None:
    ran = subprocess.run(
        [SCRIPT, "stats"], env={**os.environ, "REDIS_ACKER_URL": url}, capture_output=True, text=True, timeout=60
    )
    assert_one_sentence(ran, 2, "not shown because it may hold a password")
    assert "s3cret" not in ran.stderr
