"""`redis-acker bench`: a quick measure, and nothing left behind."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.runs import redis_acker, redis_acker_on_terminal
from tests.servers import Cluster, Server, start_cluster, start_server


@pytest.fixture(params=["redis-7.0", "cluster"])
def server(request: pytest.FixtureRequest) -> Iterator[Server | Cluster]:
    found = start_cluster() if request.param == "cluster" else start_server(request.param)
    yield found
    found.stop()


def keys(server: Server | Cluster) -> list[Any]:
    with server.client() as client:
        return list(client.scan_iter())


@pytest.mark.full
def test_it_measures_and_deletes_what_it_wrote(server: Server | Cluster) -> None:
    ran = redis_acker("bench", "--json", "--url", server.url)
    found = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (found["schema"], found["kind"]) == (1, "bench")
    for name in ("hset_per_s", "init_per_s", "ack_per_s", "complete_per_s", "ack_vs_hset", "rounds"):
        assert found[name] > 0
    assert found["bytes_per_root"] is None if isinstance(server, Cluster) else 5 < found["bytes_per_root"] < 20
    assert keys(server) == []


@pytest.mark.full
def test_people_get_a_table_and_are_told_before_what_is_written() -> None:
    server = start_server("valkey-9.1")
    ran = redis_acker("bench", "--url", server.url, COLUMNS="80")
    assert ran.returncode == 0
    assert ran.stdout.splitlines()[0].split() == ["per", "second", "to", "HSET"]
    assert [line.split()[0] for line in ran.stdout.splitlines()[1:5]] == ["HSET", "inits", "acks", "completing"]
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert ran.stderr.startswith("Writes 100,000 roots and 100,000 hash fields at a time")
    assert keys(server) == []
    server.stop()


@pytest.mark.parametrize("after_s", [0, 0.2, 0.4])
def test_ctrl_c_leaves_nothing_behind(after_s: float) -> None:
    server = start_server("redis-7.0")
    for _ in range(10):
        with redis_acker_on_terminal("bench", "--url", server.url) as (process, terminal):
            terminal.read_until("measuring")
            threading.Event().wait(after_s)  # to be hit in another part of a round
            process.send_signal(signal.SIGINT)
            terminal.read_to_the_end()
        # Where the bench is fast, or this test slow, the signal may come when all is done.
        if process.returncode not in (0, -signal.SIGINT):
            break
        assert keys(server) == []
    assert process.returncode == 130
    assert "Traceback" not in terminal.printed
    assert keys(server) == []
    server.stop()


def test_a_user_who_may_not_is_told_so_in_one_sentence() -> None:
    server = start_server("redis-7.0")
    with server.client() as client:
        client.execute_command("ACL SETUSER", "bench", "on", ">secret", "allkeys", "+@all", "-client")
    ran = redis_acker("bench", "--url", server.url.replace("://", "://bench:secret@"))
    assert ran.returncode == 3
    assert ran.stderr.splitlines()[-1].startswith("Error: The server does not let this user measure")
    assert "secret" not in ran.stderr
    assert keys(server) == []
    server.stop()
