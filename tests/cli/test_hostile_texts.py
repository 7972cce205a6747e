"""Texts from the store, which anybody may have written, on somebody's terminal."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator

import pytest

from redis_acker import Acker, new_edges
from redis_acker.retries.book import DeadLetter, FailedAttempt, RetryBook
from tests.backends import Servers, make_backend
from tests.cli.runs import redis_acker

EVIL = "x\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202eevil\u2028"


@pytest.fixture
def acker(servers: Servers, namespace: str) -> Iterator[Acker]:
    with Acker(servers.get("redis-7.0").url, namespace=namespace) as opened:
        yield opened
    make_backend("redis-7.0", servers).delete_keys(namespace)


def test_no_command_lets_a_text_of_the_store_control_the_terminal(acker: Acker) -> None:
    roots, edges = acker.allocate(EVIL, 5), new_edges(5)
    acker.init(roots, edges, message_ids=[f"{i}{EVIL}" for i in range(5)])
    acker.fail(roots[:2], component=EVIL, error=EVIL)
    acker.shards.lease(acker.spout_number(EVIL), EVIL, 60_000)
    history = [FailedAttempt(1, "failed", EVIL, EVIL, 1)]
    RetryBook(acker, EVIL).bury(DeadLetter(EVIL, EVIL, history, True, [EVIL]))
    keys = acker.shards.keys[0]
    acker.shards.ask(0, "XADD", keys.failures(acker.spout_number(EVIL)), "*", EVIL, EVIL)
    acker.shards.ask(0, "HSET", keys.heads(0), EVIL, EVIL)
    for words in (
        ["pending"],
        ["inspect", hex(roots[0])],
        ["inspect", hex(roots[4])],
        ["stats"],
        ["top", "--once"],
        ["doctor"],
        ["ready"],
        ["dead", "list"],
        ["dead", "show", EVIL],
        ["runs", "list"],
        ["drain", "--dry-run"],
        ["drain", "--spout", EVIL],
        ["drain", "--spout", f"{EVIL}2"],
        ["quarantine", "list"],
        ["rotate"],
        ["quarantine", "list"],
        ["fail", hex(roots[3]), "--error", EVIL],
        ["replay", "--from-store"],
        ["dead", "purge", "--all", "--yes"],
    ):
        ran = redis_acker(*words, REDIS_ACKER_URL=acker.urls[0], REDIS_ACKER_NAMESPACE=acker.namespace)
        for text in (ran.stdout, ran.stderr):
            bad = {char for char in text.replace("\n", "") if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}
            assert bad == set(), (words, text)
            assert "Traceback" not in text, (words, text)
        if words[0] == "drain" and ran.returncode == 0:
            assert all(json.loads(line) for line in ran.stdout.splitlines())
