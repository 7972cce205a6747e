"""Scripts are brought to the servers by those who may; the others wait for them, and can run none of their own."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import redis

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import ScriptsMissing
from redis_acker.store.scripts import every_script, script
from tests.cli.acting_commands.house import House
from tests.cli.acting_commands.shop import SPOUT, lines
from tests.cli.runs import redis_acker
from tests.servers import EVERY_WRITE_TO_DISK, start_server
from tests.waiting import wait_until

SHAS = [one.sha for one in every_script()]
ENDLESS = "redis.call('HSET', KEYS[1], 'x', 1) while true do end"


def known(house: House) -> list[int]:
    """How many of the scripts each node knows."""
    counts = []
    for node in house.nodes:
        with node.client() as client:
            found: Any = client.script_exists(*SHAS)
            counts.append(sum(found))
    return counts


def all_known(house: House) -> bool:
    return known(house) == [len(SHAS)] * len(house.nodes)


@pytest.mark.parametrize("role", ["executor", "inspector"])
def test_a_role_that_only_runs_scripts_cannot_bring_its_own(house: House, role: str) -> None:
    with redis.Redis.from_url(house.user_url(house.nodes[0], role)) as client:
        for command in (("SCRIPT", "LOAD", ENDLESS), ("EVAL", ENDLESS, "1", house.shop.acker.shards.keys[0].meta)):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)


def test_who_creates_a_namespace_brings_every_script_to_every_node(house: House) -> None:
    house.forget_scripts()
    for node in house.nodes:  # as after an upgrade: scripts that have not changed are there
        with node.client() as client:
            client.script_load(script("open").source)
    with Acker(house.url("spout"), namespace=house.namespace):
        assert all_known(house)


@pytest.mark.parametrize("role", ["spout", "rotator", "operator"])
def test_scripts_load_brings_every_script_to_every_node(house: House, role: str) -> None:
    house.forget_scripts()
    loaded = lines(house.as_user(role).succeed("scripts", "load", "--json"))
    assert [(one["loaded"], one["known"]) for one in loaded] == [(len(SHAS), 0)] * len(house.nodes)
    assert all_known(house)
    again = house.as_user(role).succeed("scripts", "load")
    assert again.count(f": 0 scripts loaded, {len(SHAS)} were there.\n") == len(house.nodes)


@pytest.mark.parametrize("house", ["redis-7.0", "cluster"], indirect=True)
def test_one_who_may_not_load_is_told_who_may(house: House) -> None:
    ran = house.as_user("executor").run("scripts", "load")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (3, "", 1)
    assert "does not let this user load scripts" in ran.stderr
    assert "use one of the role spout, rotator or operator" in ran.stderr


def test_scripts_load_needs_no_namespace_but_a_server(house: House) -> None:
    assert redis_acker("scripts", "load", "--url", house.server.url, "-n", "nobody").returncode == 0
    ran = redis_acker("scripts", "load", "--url", "redis://127.0.0.1:1")
    assert (ran.returncode, ran.stderr.count("\n")) == (3, 1)


def test_a_caller_who_finds_one_script_missing_brings_all_of_them(house: House) -> None:
    with Acker(house.url("spout"), namespace=house.namespace) as acker:
        house.forget_scripts()
        acker.allocate(SPOUT, 3)
        assert all_known(house)


def test_an_executor_waits_while_a_rotator_brings_the_scripts_back(house: House) -> None:
    ours = house.shop.acker
    roots, edges = ours.allocate(SPOUT, 30), new_edges(30)
    ours.init(roots, edges)
    done = threading.Event()
    with house.acker("executor") as executor, house.acker("rotator") as acker, Rotator(acker).start():
        wait_until(lambda: all_known(house))

        def work() -> None:
            executor.ack(roots, edges)
            done.set()

        house.forget_scripts()
        worker = threading.Thread(target=work)
        worker.start()
        assert done.wait(20), "the next turn of the rotator is 30 s away: it looks in between"
        worker.join()
        wait_until(lambda: all_known(house))
    assert ours.pending_count() == 0


def test_an_executor_that_waits_in_vain_says_once_what_to_do(house: House) -> None:
    roots, edges = house.shop.acker.allocate(SPOUT, 30), new_edges(30)
    house.shop.acker.init(roots, edges)
    with Acker(house.url("executor"), namespace=house.namespace, create=False, retry_for_s=0.3) as executor:
        house.forget_scripts()
        for _ in range(2):
            with pytest.raises(
                ScriptsMissing, match=r"does not know the script 'ack', .* within 0.3 s: .* scripts load"
            ):
                executor.ack(roots, edges)
        with house.nodes[0].client() as client:
            denials = [one for one in client.acl_log() if one["username"] == f"{house.namespace}-executor"]
        counts = [int(one["count"]) for one in denials if one["object"].startswith("script")]
        assert sum(counts) <= 1, "it does not ask again for what it may not"
        house.shop.succeed("scripts", "load")
        assert executor.ack(roots, edges).completed == 30


def test_an_executor_goes_on_after_its_server_was_killed_and_came_back(namespace: str) -> None:
    rules = json.loads(redis_acker("acl", "--role", "executor", "--namespace", namespace, "--json").stdout)["rules"]
    server = start_server("redis-7.0", *EVERY_WRITE_TO_DISK, "--user", "exe", ">pw", *rules)
    try:
        with Acker(server.url, namespace=namespace) as ours:
            roots, edges = ours.allocate(SPOUT, 30), new_edges(30)
            ours.init(roots, edges)
            url = server.url.replace("://", "://exe:pw@")
            with Acker(url, namespace=namespace, create=False) as executor:
                assert executor.ack(roots[:10], edges[:10]).completed == 10
                server.restart()
                with Rotator(ours).start():
                    assert executor.ack(roots[10:], edges[10:]).completed == 20
    finally:
        server.stop()
