"""`redis-acker dead`: list, show, replay and purge."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redis_acker.retries.book import DeadLetter, FailedAttempt, RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.store.message_ids import MessageId
from tests.cli.acting_commands.shop import SPOUT, Shop, ids_of, lines

AT_MS = 1_790_000_000_000


def bury(shop: Shop, *ids: MessageId, spout: str = SPOUT, **changes: Any) -> None:
    for message_id in ids:
        history = [FailedAttempt(1, "timeout", "", "", AT_MS), FailedAttempt(2, "failed", "parse", "broken", AT_MS)]
        letter = DeadLetter(
            message_id, spout, history, False, [message_id] if not isinstance(message_id, bytes) else None
        )
        RetryBook(shop.acker, spout).bury(DeadLetter(**{**vars(letter), **changes}))


def letters(shop: Shop) -> set[MessageId]:
    return {letter.message_id for letter in DeadLetters(shop.acker)}


def test_letters_are_listed_for_people_and_for_programs(shop: Shop) -> None:
    bury(shop, "m1", fatal=True)
    printed = shop.succeed("dead", "list")
    assert printed.splitlines()[0].split() == [
        "message",
        "id",
        "spout",
        "attempts",
        "died",
        "reason",
        "component",
        "error",
    ]
    assert printed.splitlines()[1].split() == (
        ["m1", SPOUT, "2", "2026-09-21", "14:13:20Z", "failed,", "fatal", "parse", "broken"]
    )
    [document] = lines(shop.succeed("dead", "list", "--json"))
    assert document == {
        "schema": 1,
        "kind": "dead_letter",
        "spout": SPOUT,
        "message_id": "m1",
        "fatal": True,
        "history": [
            {"attempt": 1, "reason": "timeout", "component": "", "error": "", "at_ms": AT_MS},
            {"attempt": 2, "reason": "failed", "component": "parse", "error": "broken", "at_ms": AT_MS},
        ],
        "payload": ["m1"],
        "stream": "default",
        "is_readable": True,
    }


def test_a_long_list_is_cut_for_people_and_says_so(shop: Shop) -> None:
    bury(shop, *range(60))
    ran = shop.run("dead", "list")
    assert (len(ran.stdout.splitlines()), ran.stderr) == (51, "10 more; --all shows them.\n")
    assert len(shop.succeed("dead", "list", "--all").splitlines()) == 61
    assert len(shop.succeed("dead", "list", "--limit", "5").splitlines()) == 6
    assert sorted(ids_of(shop.succeed("dead", "list", "--json"))) == list(range(60))
    assert shop.run("dead", "list", "--all", "--limit", "5").returncode == 2


def test_no_letters_are_no_error(shop: Shop) -> None:
    ran = shop.run("dead", "list")
    assert (ran.returncode, ran.stderr) == (0, "There are no dead letters.\n")
    assert shop.succeed("dead", "list", "--json") == ""


def test_one_letter_is_shown_with_its_history(shop: Shop) -> None:
    bury(shop, 7)
    printed = shop.succeed("dead", "show", "7")
    assert "values      [7]" in printed
    assert [line.split() for line in printed.splitlines()[-2:]] == [
        ["1", "2026-09-21", "14:13:20Z", "timeout"],
        ["2", "2026-09-21", "14:13:20Z", "failed", "parse", "broken"],
    ]
    assert json.loads(shop.succeed("dead", "show", "7", "--json"))["history"][1]["error"] == "broken"


def test_an_id_that_may_mean_two_messages_is_asked_back(shop: Shop) -> None:
    bury(shop, 7, "7", b"\xff")
    bury(shop, 7, spout="other")
    ran = shop.run("dead", "show", "7")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "s:7 of spout 'orders', i:7 of spout 'orders', i:7 of spout 'other'" in ran.stderr
    assert "name its spout with --spout" in ran.stderr
    for typed, expected in (("s:7", "7"), ("i:7", 7), ("b:/w==", {"base64": "/w=="})):
        found = json.loads(shop.succeed("dead", "show", typed, "--spout", SPOUT, "--json"))
        assert found["message_id"] == expected
    assert shop.run("dead", "show", "i:x").returncode == 2


def test_a_letter_that_is_not_there_is_not_found(shop: Shop) -> None:
    bury(shop, 7)
    for command in (("show",), ("replay",), ("purge", "--yes")):
        ran = shop.run("dead", *command, "8")
        assert (ran.returncode, ran.stdout) == (4, "")
        assert "There is no dead letter of message '8'" in ran.stderr
    assert shop.run("dead", "list", "--spout", "oders").returncode == 4


def test_replayed_letters_keep_their_history_and_their_values(shop: Shop) -> None:
    bury(shop, "m1", "m2", "m3")
    assert shop.succeed("dead", "replay", "m1", "m2") == "2 dead messages go back to work.\n"
    assert letters(shop) == {"m3"}
    found = RetryBook(shop.acker, SPOUT).load()
    assert {key: (retry.attempt, retry.payload) for key, retry in found.items()} == {
        "m1": (2, ["m1"]),
        "m2": (2, ["m2"]),
    }
    assert [one.reason for one in found["m1"].history] == ["timeout", "failed"]
    assert json.loads(shop.succeed("dead", "replay", "--all", "--json"))["replayed"] == 1
    assert letters(shop) == set()


def test_one_unknown_id_stops_the_replay_before_it_begins(shop: Shop) -> None:
    bury(shop, "m1")
    assert shop.run("dead", "replay", "m1", "m2").returncode == 4
    assert letters(shop) == {"m1"}


def test_letters_without_values_are_named_and_the_others_replayed(shop: Shop) -> None:
    bury(shop, "m1")
    bury(shop, "empty", payload=None)
    bury(shop, "unread", is_readable=False)
    ran = shop.run("dead", "replay", "--all")
    assert (ran.returncode, ran.stdout) == (1, "1 dead message goes back to work.\n")
    assert ran.stderr.count("has no values to emit: replay it with --ask-source") == 2
    assert letters(shop) == {"empty", "unread"}
    shop.succeed("dead", "replay", "--all", "--ask-source")
    assert RetryBook(shop.acker, SPOUT).load()["empty"].payload is None


def test_purging_asks_first(shop: Shop) -> None:
    bury(shop, "m1", "m2")
    ran = shop.run("dead", "purge", "--all", stdin="n\n")
    assert (ran.returncode, "Delete 2 dead letters for good? [y/N]" in ran.stderr) == (1, True)
    assert shop.run("dead", "purge", "--all").returncode == 1, "nobody is there to be asked"
    assert shop.run("dead", "purge", "--all", "--json").returncode == 2
    assert letters(shop) == {"m1", "m2"}
    assert shop.succeed("dead", "purge", "m1", stdin="y\n") == "1 dead letter was deleted.\n"
    assert json.loads(shop.succeed("dead", "purge", "--all", "--yes", "--json"))["purged"] == 1
    assert letters(shop) == set()


def test_all_of_one_spout_leaves_the_others(shop: Shop) -> None:
    bury(shop, "m1")
    bury(shop, "m2", spout="other")
    shop.succeed("dead", "purge", "--all", "--spout", "other", "--yes")
    assert letters(shop) == {"m1"}


@pytest.mark.parametrize("command", ["replay", "purge"])
def test_neither_ids_nor_all_is_refused_and_both_too(shop: Shop, command: str) -> None:
    assert shop.run("dead", command).returncode == 2
    assert shop.run("dead", command, "m1", "--all").returncode == 2
