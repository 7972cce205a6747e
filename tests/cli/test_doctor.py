"""`redis-acker doctor`: findings with remedies."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from redis_acker.store.roles import ROLES
from redis_acker.views import rights
from redis_acker.views.rights import missing_rights
from tests.backends import Servers
from tests.cli.looking import Market
from tests.servers import HOST, Server, start_server
from tests.waiting import wait_until


@pytest.fixture(params=["redis-7.0", "redis-6.2", "valkey-9.1"])
def own(request: pytest.FixtureRequest, namespace: str) -> Iterator[tuple[Server, Market]]:
    """A server of its own, with a namespace on it."""
    server = start_server(request.param, "--appendonly", "yes", "--maxmemory", "100mb")
    market = Market(server.url, namespace)
    yield server, market
    market.acker.close()
    server.stop()


def findings(market: Market, *args: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """By check; of several findings of one check the worst."""
    ran = market.run("doctor", "--json", *args)
    assert (ran.returncode, ran.stderr) == (code, "")
    found: dict[str, dict[str, Any]] = {}
    for one in map(market.parse, ran.stdout.splitlines()):
        known = found.get(one["check"])
        if known is None or ("ok", "warn", "bad").index(one["level"]) > ("ok", "warn", "bad").index(known["level"]):
            found[one["check"]] = one
    return found


def test_a_server_that_is_well_set_up_has_no_bad_finding(own: tuple[Server, Market]) -> None:
    server, market = own
    found = findings(market)

    levels = {check: one["level"] for check, one in found.items()}
    rights_level = "warn" if "6.2" in found["version"]["text"] else "ok"  # which cannot tell
    assert levels == {
        **dict.fromkeys(("reachable", "version", "eviction", "memory", "persistence", "clock", "scripts"), "ok"),
        **dict.fromkeys(("namespace", "rotation"), "ok"),
        "rights": rights_level,
    }
    assert found["version"]["where"] == f"{HOST}:{server.port}"
    assert found["namespace"]["text"] == "16 roots pending in 1 shard"


def test_people_see_a_line_for_each_finding_and_its_remedy_below(market: Market) -> None:
    ran = market.run("doctor")

    lines = ran.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("warn  persistence "))
    assert lines[at + 1].split() == [
        "->",
        "Set",
        "appendonly",
        "yes;",
        "docs/operations.md",
        "says",
        "what",
        "each",
        "setting",
        "costs.",
    ]
    assert lines[-1].endswith(" warnings, 0 bad")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_policy_that_evicts_is_bad(own: tuple[Server, Market]) -> None:
    server, market = own
    with server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    found = findings(market, code=1)["eviction"]

    assert (found["level"], found["remedy"]) == ("bad", "Set maxmemory-policy noeviction.")


def test_no_limit_and_nearly_full_memory_are_warned_of_and_full_is_bad(own: tuple[Server, Market]) -> None:
    server, market = own
    with server.client() as client:
        client.config_set("maxmemory", 0)
        assert findings(market)["memory"]["level"] == "warn"
        client.setrange("filler", 40_000_000, b"x")  # beside which a connection more or less does not count
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.05))
        assert findings(market)["memory"]["level"] == "warn"
        client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
        assert findings(market, code=1)["memory"]["level"] == "bad"


def test_a_replica_is_bad_and_a_replica_that_follows_is_well(namespace: str) -> None:
    primary = start_server("redis-7.0", "--repl-diskless-sync-delay", "0")
    replica = start_server("redis-7.0", "--replicaof", f"{HOST} {primary.port}")
    market = Market(primary.url, namespace)
    with primary.client() as client:
        wait_until(lambda: client.info("replication").get("slave0", {}).get("state") == "online", 20)
    followed, follower = findings(market), findings(market, "--url", replica.url, code=1)
    market.acker.close()
    replica.stop()
    primary.stop()

    assert followed["replication"]["level"] == "ok"
    assert (follower["role"]["level"], follower["role"]["text"]) == ("bad", "is a replica, and refuses writes")


def test_a_server_that_is_not_there_is_a_bad_finding_among_others(market: Market) -> None:
    ran = market.run("doctor", "--url", market.url, "--url", "redis://127.0.0.1:1")

    assert ran.returncode == 1
    assert "bad   reachable   127.0.0.1:1: unreachable: Error 111" in ran.stdout
    assert "ok    version     " in ran.stdout
    assert ran.stderr == ""


def test_a_wrong_password_is_a_bad_finding(own: tuple[Server, Market]) -> None:
    server, market = own
    found = findings(market, "--url", server.url.replace("://", "://nobody:falsch@"), code=1)["reachable"]

    assert found["text"].startswith("refuses access: ")
    assert found["remedy"] == "Check user, password and ACL rights."


def test_a_service_that_forbids_to_ask_is_warned_of(own: tuple[Server, Market]) -> None:
    server, market = own
    with server.client() as client:
        rules = ("on", ">pw", "allkeys", "+@all", "-info", "-config", "-acl")
        client.execute_command("ACL", "SETUSER", "managed", *rules)
    found = findings(market, "--url", server.url.replace("://", "://managed:pw@"))

    assert {check for check, one in found.items() if one["level"] == "warn"} >= {"info", "rights"}
    assert found["rotation"]["level"] == "ok"


def test_an_unknown_namespace_is_warned_of(market: Market) -> None:
    found = findings(market, "-n", "no-such")["namespace"]

    assert (found["level"], found["text"]) == ("warn", "does not exist")


def test_a_rotation_that_is_overdue_is_bad_while_roots_are_pending(market: Market) -> None:
    [keys] = market.acker.shards.keys
    market.acker.servers.client(0).hset(keys.meta, "turned_ms", int(time.time() * 1000) - 3_600_000)
    found = findings(market, code=1)["rotation"]

    assert found["level"] == "bad"
    assert re.fullmatch("55m [0-9]+s overdue in shard 0: no rotator runs", found["text"])


def test_a_stream_that_nobody_reads_is_warned_of_until_somebody_does(market: Market) -> None:
    [keys] = market.acker.shards.keys
    client: Any = market.acker.servers.client(0)
    stream = keys.completions(market.acker.spout_number("orders"))
    fields = client.xrange(stream)[0][1]
    client.delete(stream)
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    client.xadd(stream, fields, id=f"{an_hour_ago}-1")
    found = findings(market)["streams"]
    assert found["where"] == "completions of orders"
    assert found["text"].endswith("; last reader seen: never")

    with market.acker.completions("orders") as completions:
        completions.read()
        assert "streams" not in findings(market) or findings(market)["streams"]["level"] == "ok"


def test_every_node_of_a_cluster_is_looked_at(servers: Servers, namespace: str) -> None:
    cluster = servers.get("cluster")
    market = Market(cluster.url, namespace, shards=64)
    found = [market.parse(line) for line in market.run("doctor", "--json").stdout.splitlines()]
    market.acker.close()

    assert len([one for one in found if one["check"] == "version"]) == 3
    for key in servers.client("cluster").scan_iter(match=f"*{namespace}*", count=1000):
        servers.client("cluster").delete(key)


def test_the_server_can_judge_every_command_that_a_role_needs(servers: Servers) -> None:
    client = servers.client("redis-7.0")
    uses = {use for role in ROLES.values() for use in role.uses("x")}

    assert {use for use in uses if rights._allows(client, "default", *use) is None} == set()


def test_rights_are_told_by_role(own: tuple[Server, Market]) -> None:
    server, market = own
    with server.client() as client:
        if client.info("server")["redis_version"].startswith("6."):
            assert missing_rights(client, market.namespace) is None
            return
        rules = [*ROLES["inspector"].rules(market.namespace), "+acl|whoami", "+acl|dryrun", ">pw"]
        client.execute_command("ACL", "SETUSER", "looker", *rules)
    with server.client(username="looker", password="pw") as looker:
        missing = missing_rights(looker, market.namespace)

    assert missing is not None
    assert missing["inspector"] == []
    assert "hset" in missing["spout"]
