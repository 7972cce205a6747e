"""`redis-acker quarantine`, and where else the commands speak of what could not be read."""

from __future__ import annotations

import base64
import json

from tests.cli.acting_commands.shop import SPOUT, Shop, ids_of, lines, numbered


def put_junk(shop: Shop) -> None:
    """One entry that makes no sense in each failure stream, and a head in shard 0."""
    for shard, keys in enumerate(shop.acker.shards.keys):
        stream = keys.failures(shop.acker.spout_number(SPOUT))
        shop.acker.shards.ask(shard, "XADD", stream, "*", "x\x1b[31m", "y\x07\n")
    shop.acker.shards.ask(0, "HSET", shop.acker.shards.keys[0].heads(shop.acker.settings.buckets), "odd", "junk")


def test_commands_go_on_and_the_quarantine_shows_and_purges_what_they_left_out(shop: Shop) -> None:
    roots = shop.start_failed(numbered(20))
    put_junk(shop)
    assert "finished" in shop.succeed("inspect", hex(int(roots[0])))
    assert sorted(ids_of(shop.succeed("drain"))) == sorted(numbered(20))

    found = lines(shop.succeed("quarantine", "list", "--json"))
    number = shop.acker.spout_number(SPOUT)
    assert sorted((one["kind"], one["from"], one["shard"]) for one in found) == [
        ("set_aside", f"failures:{number}", 0),
        ("set_aside", f"failures:{number}", 1),
        ("set_aside", "heads", 0),
    ]
    parts = [base64.b64decode(part["base64"]) for part in found[0]["parts"]]
    assert parts in ([b"x\x1b[31m", b"y\x07\n"], [b"junk", b"", b""])
    shown = shop.succeed("quarantine", "list")
    assert len(shown.splitlines()) == 4
    assert "\x1b" not in shown

    stats = json.loads(shop.succeed("stats", "--interval", "1ms", "--json"))
    assert sum(one["quarantined"] for one in stats["shards"]) == sum(one["set_aside"] for one in stats["shards"]) == 3
    assert "3 in quarantine" in shop.succeed("stats", "--interval", "1ms")
    assert "3 records could not be read" in shop.run("doctor").stdout

    assert shop.run("quarantine", "purge").returncode == 2
    assert shop.succeed("quarantine", "purge", "--from", "heads", "--yes") == "1 record was deleted.\n"
    assert json.loads(shop.succeed("quarantine", "purge", "--all", "--yes", "--json"))["purged"] == 2
    assert shop.run("quarantine", "list").stderr == "The quarantine is empty.\n"
