"""`redis-acker fail` and `redis-acker extend`."""

from __future__ import annotations

import pytest

from redis_acker import new_edges
from tests.cli.acting_commands.shop import SPOUT, Shop, lines


def text(root: int) -> str:
    return f"0x{root:016x}"


def test_roots_fail_with_a_reason_for_people(shop: Shop) -> None:
    first, second, third = shop.start(["a", "b", "c"]).tolist()
    signed = str(second - (1 << 64) if second >> 63 else second)
    assert shop.succeed("fail", text(first), signed, "--error", "customer is gone") == (
        f"Root {text(first)} has failed.\nRoot {text(second)} has failed.\n"
    )
    shop.succeed("fail", str(third), "--fatal")
    found = {line["message_id"]: line for line in lines(shop.succeed("drain"))}
    assert [(found[one]["error"], found[one]["fatal"]) for one in "abc"] == [
        ("customer is gone", False),
        ("customer is gone", False),
        ("failed by hand", True),
    ]
    assert {line["component"] for line in found.values()} == {"redis-acker fail"}


def test_finished_and_unknown_roots_are_named_and_the_others_fail(shop: Shop) -> None:
    first, second = shop.start(["a", "b"]).tolist()
    shop.acker.fail([first])
    ran = shop.run("fail", text(first), text(second), "12")
    assert (ran.returncode, ran.stdout) == (4, f"Root {text(second)} has failed.\n")
    assert ran.stderr == (
        f"Root {text(first)} is already finished: nothing was done.\n"
        f"Root {text(12)} is unknown: never seen, or finished long ago.\n"
    )
    ran = shop.run("fail", text(first), "--json")
    assert (ran.returncode, ran.stderr) == (4, "")
    assert lines(ran.stdout) == [{"schema": 1, "kind": "failed", "root": text(first), "state": "finished"}]


def test_a_root_whose_init_has_not_come_fails_when_it_comes(shop: Shop) -> None:
    roots, edges = shop.acker.allocate(SPOUT, 1), new_edges(1)
    shop.acker.ack(roots, edges)
    assert "has no init yet: it will fail when that comes." in shop.succeed("fail", text(int(roots[0])))
    assert shop.acker.init(roots, edges).failed == 1


def test_pending_roots_are_extended(shop: Shop) -> None:
    first, second = shop.start(["a", "b"]).tolist()
    shop.acker.fail([first])
    ran = shop.run("extend", text(second))
    assert (ran.returncode, ran.stdout) == (0, f"Root {text(second)} is extended.\n")
    assert ran.stderr == "The full timeout of 60.0 s starts now.\n"
    ran = shop.run("extend", text(first), text(second), "12", "--json")
    assert ran.returncode == 4
    assert [line["state"] for line in lines(ran.stdout)] == ["finished", "extended", "unknown"]


@pytest.mark.parametrize("command", ["fail", "extend"])
@pytest.mark.parametrize("root", ["12x", "0x", "1" * 30, "٣", ""])
def test_what_is_no_root_is_explained(shop: Shop, command: str, root: str) -> None:
    ran = shop.run(command, root)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{root!r} is not a root" in ran.stderr.replace("\n", " ")


@pytest.mark.parametrize("command", ["fail", "extend"])
def test_roots_must_be_named(shop: Shop, command: str) -> None:
    assert shop.run(command).returncode == 2
