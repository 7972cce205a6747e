"""The log of services: one line a fact, for people and for programs, and no password in it."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys

import pytest

from redis_acker.cli.logs import JsonLines, KeyValues, without_passwords
from tests.backends import Servers


def record(text: str, *args: object, **fields: object) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "args": args, "levelname": "INFO", "created": 1715938200.25, **fields})


def test_a_line_has_time_level_text_and_fields() -> None:
    line = KeyValues().format(record("%d roots timed out.", 3, expired=3, namespace="shop", spout="two words"))
    assert line == (
        'time=2024-05-17T09:30:00.250Z level=info text="3 roots timed out." expired=3 namespace=shop spout="two words"'
    )


def test_programs_get_the_same_facts() -> None:
    found = json.loads(JsonLines().format(record("%d roots timed out.", 3, expired=3)))
    assert found == {
        "schema": 1,
        "kind": "log",
        "time": "2024-05-17T09:30:00.250Z",
        "level": "info",
        "text": "3 roots timed out.",
        "expired": 3,
    }


@pytest.mark.parametrize("formatter", [KeyValues(), JsonLines()])
def test_a_fact_stays_on_one_line_whatever_it_says(formatter: logging.Formatter) -> None:
    hostile = 'a\nlevel=error text="forged" \x1b[31m\u2028\u202e\\'
    line = formatter.format(record("%s", hostile, spout=hostile))
    assert len(line.splitlines()) == 1
    assert line.isascii()
    assert "\x1b" not in line
    assert ' level=error text="forged"' not in line


def test_an_error_is_said_on_the_same_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        line = KeyValues().format(record("It broke.", exc_info=sys.exc_info()))
    assert line.endswith('text="It broke. ValueError: two lines"')


@pytest.mark.parametrize(
    "text",
    [
        "redis://user:hunter2@host:6379/0 is away",
        "rediss://:hunter2@host",
        "redis://host?password=hunter2&db=1",
        "password: hunter2",
        "{'password': 'hunter2'}",
        "{'password': 'a secret, hunter2'}",
        'password="a hunter2"',
        "redis://:half@hunter2@host:6379/0, redis://user:hunter2@host",
    ],
)
def test_a_password_is_left_out(text: str) -> None:
    assert "hunter2" not in without_passwords(text)
    assert "hunter2" not in KeyValues().format(record("%s", text, url=text))
    assert "hunter2" not in JsonLines().format(record(text, url=text))


def test_other_texts_stay_as_they_are() -> None:
    text = "http://127.0.0.1:9464/metrics: the password was wrong, mail a@b.example"
    assert without_passwords(text) == text


PROGRAM = """
from redis_acker import Acker, BasicBolt, LocalRunner, RetryPolicy, TopologyBuilder
from redis_acker.cli.logs import start_logs
from redis_acker.spouts.iterable import IterableSpout

class Breaks(BasicBolt):
    def process(self, tup, emit):
        raise ValueError("first line\\nsecond line of redis://u:secret@host/0")

start_logs(as_json={as_json})
builder = TopologyBuilder("job")
builder.spout("source", IterableSpout(["a"]))
builder.bolt("breaks", Breaks()).shuffle("source")
with Acker("{url}", namespace="{namespace}") as acker:
    with LocalRunner(builder.build(), acker, retries=RetryPolicy(max_attempts=2, first_ms=1)) as runner:
        runner.pause("source")
        runner.resume("source")
        assert runner.wait_until_idle(timeout_s=30)
"""


@pytest.mark.parametrize("as_json", [True, False])
def test_a_program_gets_the_same_lines_from_its_drivers_and_bolts(
    servers: Servers, namespace: str, as_json: bool
) -> None:
    url = servers.get("redis-7.0").url
    code = PROGRAM.format(url=url, namespace=namespace, as_json=as_json)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    client = servers.client("redis-7.0")
    for key in client.scan_iter(match=f"*{namespace}*"):
        client.delete(key)
    assert ran.returncode == 0, ran.stderr
    found = ran.stderr.splitlines()
    if as_json:
        texts = [json.loads(line)["text"] for line in found]
    else:
        assert all(re.match(r"time=\S+ level=(info|warning|error) text=", line) for line in found)
        texts = found
    for said in ("is paused", "is resumed", "raised an error, which fails", "is dead after 2 attempts"):
        assert any(said in text for text in texts), said
    assert "secret" not in ran.stderr
