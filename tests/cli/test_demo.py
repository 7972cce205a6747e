"""The demo balances its books."""

import json
from typing import Any

import pytest

from redis_acker.cli.demo import Books, table
from tests.cli.runs import redis_acker, redis_acker_on_terminal


def test_every_message_has_one_final_event() -> None:
    ran = redis_acker("demo", "--messages", "20000", "--json")

    books = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert books["balanced"] is True
    assert books["messages"] == 20_000 == books["completed"] + books["failed"] + books["timed_out"]
    assert books["completed"] > 0
    assert books["failed"] > 0
    assert books["timed_out"] > 0
    assert books["pending"] == books["lost"] == books["twice"] == books["acks_applied_twice"] == 0


def test_the_demo_says_so_in_a_table_of_80_columns() -> None:
    ran = redis_acker("demo", "--messages", "1000", COLUMNS="80")

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("The books balance.\n")
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_a_single_message_is_enough() -> None:
    assert redis_acker("demo", "--messages", "1").returncode == 0


def test_progress_is_shown_on_a_terminal_and_wiped_at_the_end() -> None:
    with redis_acker_on_terminal("demo", "--messages", "1000") as (process, terminal):
        terminal.read_to_the_end()

    assert process.returncode == 0
    assert "of 1,000 messages have their final event" in terminal.printed
    assert terminal.printed.endswith("\r\x1b[K")


@pytest.mark.parametrize(
    "fault", [{"completed": 9}, {"pending": 1}, {"lost": 1}, {"twice": 1}, {"acks_applied_twice": 1}], ids=str
)
def test_books_with_a_fault_do_not_balance(fault: dict[str, Any]) -> None:
    right: dict[str, Any] = {
        "server": "Redis 7.0",
        "messages": 15,
        "completed": 10,
        "failed": 3,
        "timed_out": 2,
        "pending": 0,
        "lost": 0,
        "twice": 0,
        "acks_sent_twice": 5,
        "acks_applied_twice": 0,
        "seconds": 1.0,
    }

    assert Books(**right).balanced
    assert not Books(**{**right, **fault}).balanced
    assert table(Books(**{**right, **fault})).endswith("The books do NOT balance.")
