"""`redis-acker health` and `ready`: quick answers for probes."""

import json
import time
from collections.abc import Iterator

import pytest

from redis_acker import Acker
from tests.backends import Servers
from tests.cli.looking import Market
from tests.cli.runs import redis_acker
from tests.servers import Server, start_server

NOBODY = "redis://127.0.0.1:1"


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own, to be paused and filled."""
    found = start_server("redis-7.0")
    yield found
    found.stop()


def test_health_is_ok_when_the_server_answers(market: Market) -> None:
    assert market.text("health") == "OK: the server answered.\n"
    assert market.document("health") == {"schema": 1, "kind": "health", "servers": 1, "shards": 1}


def test_health_does_not_ask_for_the_namespace(market: Market) -> None:
    found = market.document("health", "--namespace", "no-such")

    assert (found["servers"], found["shards"]) == (1, None)


def test_every_server_of_several_and_every_node_of_a_cluster_is_asked(servers: Servers, namespace: str) -> None:
    urls = [servers.get(kind).url for kind in ("redis-7.0", "valkey-9.1")]
    ran = redis_acker("health", *(word for url in urls for word in ("--url", url)), "-n", namespace)
    assert (ran.returncode, ran.stdout) == (0, "OK: all 2 servers answered.\n")
    ran = redis_acker("health", "-n", namespace, REDIS_ACKER_URL=",".join(urls))
    assert ran.stdout == "OK: all 2 servers answered.\n"
    ran = redis_acker("health", "-n", namespace, "--url", servers.get("cluster").url)
    assert (ran.returncode, ran.stdout) == (0, "OK: all 3 servers answered.\n")


@pytest.mark.parametrize("command", ["health", "ready"])
def test_a_server_that_is_not_there_is_named_with_exit_code_3(command: str, market: Market) -> None:
    ran = market.run(command, "--url", market.url, "--url", NOBODY)

    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith(f"Error: The server {NOBODY} did not answer (")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["health", "ready"])
def test_a_server_that_hangs_is_given_up_in_time(command: str, server: Server, namespace: str) -> None:
    with Acker(server.url, namespace=namespace):
        pass
    server.pause()
    start = time.monotonic()
    ran = redis_acker(command, "--timeout", "300ms", "-n", namespace, "--url", server.url)
    took_s = time.monotonic() - start
    server.resume()

    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith(f"Error: The server {server.url} did not answer within 0.3 s")
    assert took_s < 5  # a connection alone would wait so long


@pytest.mark.parametrize("command", ["health", "ready"])
def test_a_wrong_password_is_one_line_with_exit_code_3(command: str, server: Server, namespace: str) -> None:
    with server.client() as client:
        client.config_set("requirepass", "geheim")
    ran = redis_acker(command, "-n", namespace, "--url", server.url.replace("://", "://:falsch@"))

    assert (ran.returncode, ran.stdout) == (3, "")
    assert "refused access" in ran.stderr
    assert "falsch" not in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_namespace_that_takes_work_is_ready(market: Market) -> None:
    assert market.text("ready") == "Ready: 1 shard, memory left, rotation on time.\n"
    assert market.document("ready") == {
        "schema": 1,
        "kind": "ready",
        "ready": True,
        "servers": 1,
        "shards": 1,
        "problems": [],
    }


def test_a_namespace_that_does_not_exist_is_not_ready(market: Market) -> None:
    ran = market.run("ready", "-n", "no-such")

    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr == "Error: Namespace 'no-such' does not exist on these servers: check its name and the URL.\n"


def test_a_namespace_whose_rotation_is_overdue_is_not_ready(market: Market) -> None:
    [keys] = market.acker.shards.keys
    market.acker.servers.client(0).hset(keys.meta, "turned_ms", int(time.time() * 1000) - 3_600_000)
    ran = market.run("ready", "--json")

    assert ran.returncode == 1
    assert json.loads(ran.stdout)["ready"] is False
    assert ran.stderr.startswith("Error: Shard 0 was due to rotate 3,3")


def test_a_namespace_that_has_lost_a_shard_is_not_ready(servers: Servers, namespace: str) -> None:
    url = servers.get("redis-7.0").url
    with Acker(url, namespace=namespace, shards=2) as acker:
        acker.servers.client(1).delete(acker.shards.keys[1].meta)
        ran = redis_acker("ready", "-n", namespace, "--url", url)
        acker.servers.client(0).delete(acker.shards.keys[0].meta)

    assert (ran.returncode, ran.stderr) == (1, "Error: Shard 1 is missing: its server has lost its data.\n")


def test_a_namespace_of_which_other_servers_are_named_is_not_ready(servers: Servers, market: Market) -> None:
    ran = market.run("ready", "--url", market.url, "--url", servers.get("valkey-9.1").url)

    assert ran.returncode == 1
    assert "is spread over 1 servers, but 2 are named." in ran.stderr


def test_a_server_without_memory_is_not_ready(server: Server, namespace: str) -> None:
    with Acker(server.url, namespace=namespace), server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
    ran = redis_acker("ready", "-n", namespace, "--url", server.url)

    assert ran.returncode == 1
    assert f"The server {server.url} is out of memory" in ran.stderr


def test_probes_need_neither_info_nor_more_than_reading(server: Server, namespace: str) -> None:
    with Acker(server.url, namespace=namespace), server.client() as client:
        rules = ("on", ">pw", "~acker:{*", "+ping", "+hget", "+hmget", "+time")
        client.execute_command("ACL", "SETUSER", "probe", *rules)
    url = server.url.replace("://", "://probe:pw@")

    assert redis_acker("health", "-n", namespace, "--url", url).returncode == 0
    assert redis_acker("ready", "-n", namespace, "--url", url).returncode == 0
