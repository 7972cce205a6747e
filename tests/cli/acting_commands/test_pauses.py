"""`redis-acker pause` and `redis-acker resume`."""

from __future__ import annotations

import json

from tests.cli.acting_commands.shop import Shop, lines


def test_a_spout_is_paused_and_resumed_by_name(shop: Shop) -> None:
    shop.start(["a"])
    assert shop.succeed("pause", "orders") == "Spout orders is paused.\n"
    assert shop.succeed("pause", "orders") == "Spout orders is paused already.\n"
    [spout] = json.loads(shop.succeed("stats", "--json", "--interval", "1ms"))["spouts"]
    assert spout["paused_ms"] > 1_700_000_000_000
    assert spout["lag"] is None
    assert "orders (paused)" in shop.succeed("stats", "--interval", "1ms")
    assert "orders (paused)" in shop.succeed("top", "--once")
    assert shop.succeed("resume", "orders") == "Spout orders is resumed.\n"
    assert shop.succeed("resume", "orders") == "Spout orders is not paused.\n"
    [spout] = json.loads(shop.succeed("stats", "--json", "--interval", "1ms"))["spouts"]
    assert spout["paused_ms"] is None
    assert "(paused)" not in shop.succeed("stats", "--interval", "1ms")


def test_a_component_stands_for_all_its_tasks_and_for_nothing_else(shop: Shop) -> None:
    for name in ("shop/orders/0", "shop/orders/1", "shop/orders/new", "shop/orders/0/x", "shop/other/0"):
        shop.start(["a"], spout=name)
    assert lines(shop.succeed("pause", "shop/orders", "--json")) == [
        {"schema": 1, "kind": "paused", "spout": "shop/orders/0", "changed": True},
        {"schema": 1, "kind": "paused", "spout": "shop/orders/1", "changed": True},
    ]
    assert lines(shop.succeed("resume", "shop/orders/1", "shop/orders", "--json")) == [
        {"schema": 1, "kind": "resumed", "spout": "shop/orders/1", "changed": True},
        {"schema": 1, "kind": "resumed", "spout": "shop/orders/0", "changed": True},
    ]


def test_an_unknown_spout_is_named_and_nothing_is_paused(shop: Shop) -> None:
    shop.start(["a"])
    ran = shop.run("pause", "orders", "nobody")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "has no spout 'nobody': it has ['orders']." in ran.stderr
    assert "Traceback" not in ran.stderr
    [spout] = json.loads(shop.succeed("stats", "--json", "--interval", "1ms"))["spouts"]
    assert spout["paused_ms"] is None


def test_a_spout_has_to_be_named(shop: Shop) -> None:
    ran = shop.run("pause")
    assert ran.returncode == 2
    assert "Missing argument 'SPOUT...'" in ran.stderr
