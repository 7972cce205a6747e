"""The log of services: one line a fact, for people and for programs, and no password in it."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from redis_acker.cli.logs import JsonLines, KeyValues, without_passwords


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
    ],
)
def test_a_password_is_left_out(text: str) -> None:
    assert "hunter2" not in without_passwords(text)
    assert "hunter2" not in KeyValues().format(record("%s", text, url=text))
    assert "hunter2" not in JsonLines().format(record(text, url=text))


def test_other_texts_stay_as_they_are() -> None:
    text = "http://127.0.0.1:9464/metrics: the password was wrong, mail a@b.example"
    assert without_passwords(text) == text
