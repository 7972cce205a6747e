"""What another program wrote into the keys of a namespace: it is set aside whole, and everything else goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest

from redis_acker import Acker, Rotator, new_edges
from redis_acker.errors import Unreadable
from redis_acker.store.heads import read_head
from redis_acker.store.packed import read_items
from redis_acker.store.quarantine import Quarantine
from redis_acker.store.scripts import assemble
from redis_acker.store.shards import Shards
from tests.backends import Backend
from tests.clock import Clock

SPOUT = "orders"
TICK_MS = 15_000

JUNK_HEADS = [b"", b"x", b"junk", b"\xff" * 8, b"\xff" * 40, pack(">BH5s", 1, 2000, b"12345") + bytes(12)]
JUNK_IDS = [b"", b"x", b"sF\0\1", b"sF\0\1\0\4", b"sV\0\1" + bytes(8), b"\xff" * 12, b"n?\xff\xff"]


@pytest.fixture
def acker(backend: Backend, namespace: str, clock: Clock) -> Iterator[Acker]:
    with Acker(backend.target, namespace=namespace, shards=1, clock=clock) as opened:
        yield opened


def start(acker: Acker, count: int, **options: Any) -> tuple[Any, Any]:
    roots, edges = acker.allocate(SPOUT, count), new_edges(count)
    acker.init(roots, edges, **options)
    return roots, edges


def ask(shards: Shards, *words: Any) -> Any:
    return shards.ask(0, *words)


def contents(acker: Acker) -> dict[str, list[bytes]]:
    """Where it was -> what it says."""
    return {f"{one.where} {one.name.decode()}": one.parts for one in Quarantine(acker.shards)}


def expire(acker: Acker, clock: Clock) -> int:
    expired = 0
    for _ in range(4):
        clock.advance(TICK_MS)
        expired += Rotator(acker).once().expired
    return expired


# -- streams -------------------------------------------------------------------------------------------------------


def test_an_entry_that_makes_no_sense_leaves_its_stream_and_the_others_are_read(
    acker: Acker, caplog: pytest.LogCaptureFixture
) -> None:
    roots, edges = start(acker, 6)
    key = acker.shards.keys[0].completions(acker.spout_number(SPOUT))
    acker.ack(roots[:2], edges[:2])
    names = [
        ask(acker.shards, "XADD", key, "*", *fields).decode() for fields in (("x", "y"), ("at_ms", "1", "items", ""))
    ]
    acker.ack(roots[2:4], edges[2:4])
    with acker.completions(SPOUT) as reader:
        assert sorted(root for one in reader.consume() for root in one.roots.tolist()) == roots[:4].tolist()
    assert contents(acker) == {
        f"completions:{acker.spout_number(SPOUT)} {names[0]}": [b"x", b"y"],
        f"completions:{acker.spout_number(SPOUT)} {names[1]}": [b"at_ms", b"1", b"items", b""],
    }
    assert ask(acker.shards, "XLEN", key) == 0
    assert acker.stats().shards[0].set_aside == 2
    assert len([one for one in caplog.records if "set aside" in one.message]) == 2
    with acker.completions(SPOUT) as reader:
        assert list(reader.consume()) == []
    assert len([one for one in caplog.records if "set aside" in one.message]) == 2


def test_more_junk_than_one_read_brings_does_not_hide_what_follows(acker: Acker) -> None:
    roots, _ = start(acker, 1)
    key = acker.shards.keys[0].failures(acker.spout_number(SPOUT))
    for _ in range(250):
        ask(acker.shards, "XADD", key, "*", "x", "y")
    acker.fail(roots)
    with acker.failures(SPOUT) as reader:
        assert [one.roots.tolist() for one in reader.consume()] == [roots.tolist()]
    assert len(Quarantine(acker.shards)) == 250


def item(count: int, *, kind: int = 0, block: int = 1024, body: bytes = b"", ids: bytes = b"") -> bytes:
    return pack(">Q5sBH", block, b"birth", kind, count) + body + pack(">I", len(ids)) + ids


@pytest.mark.parametrize(
    "items",
    [
        item(65_535) * 100,  # 2 kB that say 6.5 million roots
        item(1024) * 100,
        item(0),
        item(1, kind=3),
        item(1, block=1025),
        item(2, kind=1, body=pack(">2H", 1, 60_000)),
        item(1)[:-1],
        item(1) + b"x",
        item(9, kind=2, body=b"\1"),
        item(1, ids=b"sF\0\1\0\x09short"),
        item(1, ids=b"sF\0\1\0\1\xff"),
        item(1, ids=b"zF\0\1\0\1a"),
        item(2, ids=b"sV\0\1" + pack(">2I", 5, 3) + b"abcde"),
        item(2, ids=b"iF\0\1\0\2abcd"),
        item(2, ids=b"sV\0\1" + pack(">I", 1)),
    ],
)
def test_items_that_no_script_writes_are_not_read(items: bytes) -> None:
    with pytest.raises(Unreadable):
        read_items(items)


# -- records -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("junk", JUNK_HEADS)
def test_the_rotator_sets_aside_heads_that_make_no_sense_and_drains_the_others(
    acker: Acker, clock: Clock, caplog: pytest.LogCaptureFixture, junk: bytes
) -> None:
    roots, _ = start(acker, 1200, message_ids=[f"{i}" for i in range(1200)])
    lone, _ = start(acker, 1)
    keys = acker.shards.keys[0]
    ask(acker.shards, "HSET", keys.heads(0), b"12345678", junk, b"not a block", junk)
    assert expire(acker, clock) == 1201
    with acker.failures(SPOUT) as reader:
        found = [root for one in reader.consume() for root in one.roots.tolist()]
    assert sorted(found) == sorted([*roots.tolist(), *lone.tolist()])
    assert contents(acker) == {
        f"heads {b'12345678'.hex()}": [junk, b"", b""],
        f"heads {b'not a block'.hex()}": [junk, b"", b""],
    }
    assert "set aside" in caplog.text
    assert acker.stats().shards[0].set_aside == 2


@pytest.mark.parametrize("junk", JUNK_HEADS)
def test_a_call_sets_aside_a_head_that_makes_no_sense_and_deals_with_the_others(acker: Acker, junk: bytes) -> None:
    roots, edges = start(acker, 1500)
    lost = int(roots[0]).to_bytes(8, "big")
    head = acker.shards.heads(0, 0).get(lost)
    ask(acker.shards, "HSET", acker.shards.keys[0].heads(0), lost, junk)
    assert acker.inspect(int(roots[0])).state == "unknown"
    assert [one.root for one in acker.pending()] != []
    assert acker.ack(roots, edges).completed == 1000
    assert [parts[0] for parts in contents(acker).values()] == [junk]
    assert acker.shards.heads(0, 0).get(lost) not in (junk, head)


def test_ack_vals_that_are_missing_or_cut_off_take_only_their_own_block_with_them(acker: Acker) -> None:
    roots, edges = start(acker, 1500)
    vals = acker.shards.keys[0].fixed[5 + acker.settings.buckets + 1]
    ask(acker.shards, "HDEL", vals, int(roots[0]).to_bytes(8, "big"))
    ask(acker.shards, "HSET", vals, int(roots[500]).to_bytes(8, "big"), b"cut off")
    assert acker.ack(roots, edges).completed == 500
    assert len(Quarantine(acker.shards)) == 2


@pytest.mark.parametrize("junk", JUNK_IDS)
def test_message_ids_that_make_no_sense_keep_no_root_from_its_final_event(
    acker: Acker, clock: Clock, junk: bytes
) -> None:
    roots, edges = start(acker, 1000, message_ids=[f"m{i}" for i in range(1000)], echo_ids=True)
    lone, _ = start(acker, 1, message_ids=["alone"])
    assert acker.ack(roots[500:510], edges[500:510]).completed == 10
    ids = acker.shards.keys[0].fixed[5 + 2 * (acker.settings.buckets + 1)]
    for root in (roots[0], roots[500], lone[0]):
        ask(acker.shards, "HSET", ids, int(root).to_bytes(8, "big"), junk)
    assert acker.ack(roots[:10], edges[:10]).completed == 10
    assert acker.fail(roots[510:520], error="broken").failed == 10
    assert expire(acker, clock) == 1000 - 30 + 1
    with acker.failures(SPOUT) as failures, acker.completions(SPOUT) as completions:
        events = [*failures.consume(), *completions.consume()]
    found = [root for one in events for root in one.roots.tolist()]
    assert sorted(found) == sorted([*roots.tolist(), *lone.tolist()])
    assert contents(acker) == {f"ids {int(root):016x}": [junk] for root in (roots[0], roots[500], lone[0])}


def test_a_block_whose_ack_vals_are_gone_expires_whole_though_some_of_its_roots_were_extended(
    acker: Acker, clock: Clock
) -> None:
    roots, _ = start(acker, 100)
    clock.advance(TICK_MS)
    Rotator(acker).once()
    acker.extend(roots[:3])
    ask(acker.shards, "DEL", acker.shards.keys[0].fixed[5 + acker.settings.buckets + 2])
    assert expire(acker, clock) == 100
    with acker.failures(SPOUT) as reader:
        assert sorted(root for one in reader.consume() for root in one.roots.tolist()) == roots.tolist()


def test_a_fail_of_an_orphan_whose_ack_vals_are_gone_is_kept(acker: Acker) -> None:
    roots, edges = acker.allocate(SPOUT, 100), new_edges(100)
    acker.ack(roots[:50], edges[:50])
    ask(acker.shards, "DEL", acker.shards.keys[0].fixed[5 + acker.settings.buckets + 1])
    assert acker.fail(roots[60:61]).kept == 1
    assert acker.init(roots, edges).failed == 1
    assert len(Quarantine(acker.shards)) == 1


def test_a_bitmap_of_more_roots_than_a_block_has_is_set_aside(acker: Acker, clock: Clock) -> None:
    roots, edges = start(acker, 20)
    acker.extend(roots[:3])
    assert acker.ack(roots[:5], edges[:5]).completed == 5
    heads, block = acker.shards.heads(0, 0), int(roots[0]).to_bytes(8, "big")
    head = bytearray(heads.get(block) or b"")
    head[12] |= 0xF0  # flags(1) n(2) birth(5) count(2) bitmap(3)
    ask(acker.shards, "HSET", heads.key, block, bytes(head))
    assert list(acker.pending()) == []
    assert expire(acker, clock) == 0
    assert len(Quarantine(acker.shards)) == 1


def test_an_init_takes_the_place_of_a_head_that_makes_no_sense(acker: Acker) -> None:
    roots, edges = acker.allocate(SPOUT, 3), new_edges(3)
    ask(acker.shards, "HSET", acker.shards.keys[0].heads(0), int(roots[0]).to_bytes(8, "big"), b"junk")
    assert acker.init(roots, edges).initialised == 3
    assert acker.ack(roots, edges).completed == 3
    assert len(Quarantine(acker.shards)) == 1


def test_python_and_lua_agree_on_which_heads_can_be_read(backend: Backend) -> None:
    dice, client = random.Random("heads"), backend.client()
    look = "-- needs: shard, sound\nreturn sound('12345678', args[4], NURSERY) and 1 or 0"
    keys = [f"{{t}}{i}" for i in range(20)]
    for size in [0, 1, 2, 8, 9, 500] * 30:
        flags = dice.getrandbits(8)
        head = pack(">BH5s", flags, size, b"birth") + dice.randbytes(dice.choice([0, 8 * size, 12, 40, 600]))
        if dice.random() < 0.5 and not flags & 0b11000110:
            head = head[:8] + bytes(8 * size if size <= 8 else 0) + dice.randbytes(12 * dice.randint(0, 3))
        try:
            read_head(head)
            is_readable = 1
        except Unreadable:
            is_readable = 0
        found: Any = client.eval(assemble(look), len(keys), *keys, 3, "", "", head)
        assert found == is_readable, head
