"""`redis-acker acl`: each role can do what it is for, with exactly the rules that are printed, and nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from redis_acker import Acker, Anchors, RetryPolicy, Rotator, SpoutDriver, new_edges
from redis_acker.errors import AccessDenied
from redis_acker.retries.book import RetryBook
from redis_acker.retries.dead_letters import DeadLetters
from redis_acker.spouts.iterable import IterableSpout
from redis_acker.store.progress import RunProgress
from redis_acker.store.roles import ROLES
from redis_acker.store.run_records import SUNK, Place, field_of
from redis_acker.store.transport import Command
from tests.backends import Servers, make_backend
from tests.cli.acting_commands.house import PASSWORD, House
from tests.cli.acting_commands.shop import SPOUT, ids_of, lines
from tests.cli.runs import redis_acker
from tests.cli.stored_runs import StoredRun
from tests.servers import start_server
from tests.waiting import wait_until


@pytest.fixture(params=["redis-7.0", "valkey-9.1"])
def hasty_house(request: pytest.FixtureRequest, servers: Servers, namespace: str) -> Iterator[House]:
    """Whose roots time out soon."""
    found = House(servers.get(request.param), namespace, timeout_ms=300)
    yield found
    found.close()
    make_backend(request.param, servers).delete_keys(namespace)


def assert_stays_in_its_namespace(house: House, role: str) -> None:
    """Neither other keys nor commands that reach further."""
    with redis.Redis.from_url(house.nodes[0].url.replace("://", f"://{house.namespace}-{role}:{PASSWORD}@")) as client:
        for command in (
            ("GET", "other"),
            ("HGETALL", f"acker:{{{house.namespace}2:0}}:meta"),
            ("HGETALL", "acker:{other:0}:meta"),
            ("FLUSHALL",),
            ("KEYS", "*"),
            ("SCAN", "0"),
            ("CONFIG", "GET", "*"),
            ("ACL", "WHOAMI"),
            ("EVAL", "return 1", "0"),
            ("SCRIPT", "FLUSH"),
            ("CLIENT", "LIST"),
            ("SUBSCRIBE", "x"),
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
    with pytest.raises(AccessDenied):
        Acker(house.url(role), namespace=f"{house.namespace}2", retry_for_s=0)


def test_an_executor_works_on_portions_acks_fails_and_extends_and_no_more(house: House) -> None:
    ours = house.shop.acker
    roots, edges = ours.allocate(SPOUT, 30), new_edges(30)
    ours.init(roots, edges, message_ids=[f"m{i}" for i in range(30)])
    RetryBook(ours, SPOUT)
    with house.acker("executor") as acker:
        assert acker.ack(roots[:10], edges[:10]).completed == 10
        assert acker.ack(roots[10:12], edges[10:12] ^ edges[11:13]).applied == 2
        assert acker.fail(roots[20:22], component="parse", error="broken").failed == 2
        assert acker.extend(roots[22:24]) == 2
        early, early_edges = ours.allocate(SPOUT, 20), new_edges(20)
        acker.ack(early[:5], early_edges[:5])
        acker.fail(early[5:6])
        assert ours.init(early, early_edges).failed == 1
        keys, number = acker.shards.keys[0], ours.spout_number(SPOUT)
        for command in (("HSET", keys.failed_rows("run"), "1", "x"), ("PEXPIRE", keys.failed_rows("run"), 1000)):
            assert acker.shards.transport.run_one(Command(0, command)) == 1, "as the workers of Spark note failed rows"
        run, start = StoredRun(ours, SPOUT), Place(field_of(0, 0), 0, 0)
        portions = RunProgress(acker, number, run.name)
        begun = portions.begin(start, 30, 1)
        assert (begun.state, portions.reach(start, begun, SUNK)) == ("new", "kept")
        for name in (keys.dead(number), keys.retries(number), keys.lease(number), keys.spouts, keys.run(number)):
            with pytest.raises(AccessDenied):
                acker.shards.transport.run_one(_hget(name))
        for refused in (
            lambda: acker.allocate(SPOUT),
            lambda: acker.stats(),
            lambda: acker.inspect(int(roots[0])),
            lambda: Rotator(acker).once(),
            lambda: acker.failures(SPOUT).read(),
        ):
            with pytest.raises(AccessDenied):
                refused()
    assert_stays_in_its_namespace(house, "executor")


def _hget(key: str) -> Any:
    return Command(0, ("HGET", key, "x"))


class Task:
    """Acks even values, fails odd ones."""

    def __init__(self, acker: Acker) -> None:
        self._acker = acker

    def targets(self, stream: str, values: Sequence[Any]) -> list[Any]:
        return ["task"]

    def deliver(self, target: Any, values: Sequence[Any], stream: str, anchors: Anchors) -> None:
        [(root, edge)] = anchors.items()
        self._acker.extend([root])
        if values[0] % 2:
            self._acker.fail([root], component="task", error="odd")
        else:
            self._acker.ack([root], [edge])


def test_a_spout_drives_its_messages_to_completion_or_death(hasty_house: House) -> None:
    house = hasty_house
    with house.acker("spout") as acker:
        for letter_replayed in (False, True):
            driver = SpoutDriver(
                IterableSpout([] if letter_replayed else range(10)),
                acker,
                Task(acker),
                name="drive",
                retries=RetryPolicy(max_attempts=2, first_ms=1),
            )
            driver.open()
            expected = 1 if letter_replayed else 5
            wait_until(lambda: driver.step() or driver.counters.dead == expected, 20)  # noqa: B023
            wait_until(lambda: not driver.step() and driver.is_idle(), 20)  # noqa: B023
            driver.close()
            letters = DeadLetters(house.shop.acker, spout="drive")
            assert len(letters) == 5
            if not letter_replayed:
                assert letters.replay(next(iter(letters)))
        assert acker.stats().spouts
        house.shop.start(["a"])
        with pytest.raises(AccessDenied):
            wait_until(lambda: Rotator(acker).once().turned and False, 5)
    assert_stays_in_its_namespace(house, "spout")


def test_a_rotator_lets_roots_expire_and_sees_nothing_else(hasty_house: House) -> None:
    house = hasty_house
    house.shop.start([f"m{i}" for i in range(20)])
    with house.acker("rotator") as acker:
        house.forget_scripts()
        wait_until(lambda: Rotator(acker).once() and house.shop.acker.pending_count() == 0, 20)
        number = house.shop.acker.spout_number(SPOUT)
        for name in (acker.shards.keys[0].dead(number), acker.shards.keys[0].retries(number)):
            with pytest.raises(AccessDenied):
                acker.shards.transport.run_one(_hget(name))
        with pytest.raises(AccessDenied):
            acker.failures(SPOUT).read()
        with pytest.raises(AccessDenied):
            acker.allocate(SPOUT)
    assert house.as_user("rotator").run("rotate").returncode == 0
    assert len(ids_of(house.shop.succeed("drain", "--dry-run"))) == 20
    assert_stays_in_its_namespace(house, "rotator")


@pytest.mark.parametrize("house", ["redis-7.0", "valkey-9.1"], indirect=True)
def test_an_inspector_looks_and_changes_nothing(house: House) -> None:
    roots = house.shop.start_failed(["a", "b"]).tolist()
    StoredRun(house.shop.acker, SPOUT).work(0, 0, 5)
    user = house.as_user("inspector")
    for command in (("pending",), ("inspect", hex(roots[0])), ("stats",), ("dead", "list"), ("health",), ("ready",)):
        ran = user.run(*command)
        assert ran.returncode == 0, (command, ran.stderr)
    assert len(lines(user.succeed("drain", "--dry-run"))) == 2
    assert [run["in_work"] for run in lines(user.succeed("runs", "list", "--json"))] == [5]
    assert "in work       5" in user.succeed("runs", "show", SPOUT)
    assert "Traceback" not in user.run("doctor").stderr
    for acting in (
        ["drain"],
        ["replay", "--from-store"],
        ["rotate"],
        ["extend", hex(house.shop.start(["c"])[0])],
        ["runs", "drop", SPOUT, "--yes"],
        ["pause", SPOUT],
    ):
        ran = user.run(*acting)
        assert (ran.returncode, ran.stdout) == (3, ""), acting
    assert_stays_in_its_namespace(house, "inspector")


@pytest.mark.parametrize("house", ["redis-7.0", "valkey-9.1", "cluster"], indirect=True)
def test_an_operator_runs_every_command_that_acts(house: House, tmp_path: Path) -> None:
    user, out = house.as_user("operator"), str(tmp_path / "f.jsonl")
    first, second, _ = house.shop.start(["a", "b", "c"]).tolist()
    user.succeed("extend", hex(first))
    user.succeed("fail", hex(second))
    user.succeed("pause", SPOUT)
    user.succeed("resume", SPOUT)
    user.succeed("drain", "--out", out)
    user.succeed("replay", out)
    house.shop.start_failed(["d"])
    user.succeed("replay", stdin=user.succeed("drain"))
    house.shop.start_failed(["e"])
    user.succeed("rotate")
    user.succeed("drain")
    user.succeed("replay", "--from-store")
    assert {"b", "d", "e"} <= set(house.shop.requested())
    for command in (("pending",), ("inspect", hex(first)), ("stats",), ("dead", "list")):
        user.succeed(*command)
    user.succeed("dead", "purge", "--all", "--yes")
    StoredRun(house.shop.acker, SPOUT).work(0, 0, 5)
    assert "in work       5" in user.succeed("runs", "show", SPOUT)
    user.succeed("runs", "drop", SPOUT, "--yes")
    assert user.succeed("runs", "list") == ""
    assert_stays_in_its_namespace(house, "operator")


def test_every_role_is_printed_for_people_and_for_programs() -> None:
    ran = redis_acker("acl", "--namespace", "shop")
    assert [line.split()[2] for line in ran.stdout.splitlines()] == [f"shop-{role}" for role in ROLES]
    assert ran.stderr == "Give each user a password: ACL SETUSER <user> '>a long password'\n"
    printed = lines(redis_acker("acl", "--namespace", "shop", "--json").stdout)
    assert [line["role"] for line in printed] == list(ROLES)
    assert [" ".join(line["rules"]) for line in printed] == [line.split(" ", 3)[3] for line in ran.stdout.splitlines()]
    assert redis_acker("acl", "--role", "rotator", "--user", "rota").stdout.startswith("ACL SETUSER rota on ")


def test_mistakes_are_explained() -> None:
    assert redis_acker("acl", "--role", "king").returncode == 2
    assert redis_acker("acl", "--user", "rota").returncode == 2
    assert redis_acker("acl", "--namespace", "no way").returncode == 2


def test_a_user_has_no_password_until_it_is_given_one_and_keeps_it() -> None:
    server = start_server("redis-7.0")
    words = shlex.split(redis_acker("acl", "--role", "inspector").stdout)
    with server.client() as client:
        client.execute_command(*words)
        user: Any = client.acl_getuser(words[2])
        assert (user["passwords"], "nopass" in user["flags"]) == ([], False)
        client.execute_command("ACL", "SETUSER", words[2], f">{PASSWORD}")
        client.execute_command(*words)
        again: Any = client.acl_getuser(words[2])
        assert len(again["passwords"]) == 1
    server.stop()
