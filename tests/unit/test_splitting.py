"""Entries of a failure stream that are taken apart say of each root what the whole entry said."""

from __future__ import annotations

import random
from typing import Any

import pytest

from redis_acker.message_ids import check_attempts, check_message_ids, pack_ids
from redis_acker.outcomes import Failure, parse_entry
from redis_acker.splitting import split_items
from tests.lua.ledger import Failed, each_root

IDS: dict[str, Any] = {
    "none": lambda count: None,
    "texts": lambda count: [f"order-{'x' * (i % 5)}-{i}" for i in range(count)],
    "texts of one width": lambda count: [f"{i:08}" for i in range(count)],
    "bytes": lambda count: [bytes([i % 256]) * (i % 7) for i in range(count)],
    "a range": lambda count: list(range(1000, 1000 + count)),
    "numbers": lambda count: [i * i - 7 for i in range(count)],
}


def entry(items: bytes) -> Failure:
    fields = {"at_ms": b"5000", "reason": b"failed", "component": b"parse", "error": b"broken", "fatal": b"0"}
    flat = [part for name, value in fields.items() for part in (name.encode(), value)]
    found = parse_entry(1, b"7-0", [*flat, b"items", items])
    assert isinstance(found, Failure)
    return found


def item(block: int, ids: Any, attempts: Any, count: int) -> bytes:
    """All roots of a block, as lua/lib/items.lua writes them."""
    checked = None if ids is None else check_message_ids(ids, count)
    packed = pack_ids(checked, check_attempts(attempts, count))
    head = block.to_bytes(8, "big") + (4000).to_bytes(5, "big") + b"\0" + count.to_bytes(2, "big")
    return head + len(packed).to_bytes(4, "big") + packed


@pytest.mark.parametrize("attempts", ["one", "each"])
@pytest.mark.parametrize("kind", IDS)
def test_each_root_is_in_one_of_the_parts_as_it_was_in_the_whole(kind: str, attempts: str) -> None:
    dice = random.Random(kind + attempts)
    for count in (1, 2, 9, 300):
        tries = 3 if attempts == "one" else [1 + i % 4 for i in range(count)]
        whole = entry(item(1 << 20, IDS[kind](count), tries, count) + item(5 << 20, IDS[kind](count), tries, count))
        chosen = {root for root in whole.roots.tolist() if dice.random() < 0.3}
        parts = split_items(whole, chosen.__contains__)
        found: list[list[Failed]] = [each_root(entry(part)) if part else [] for part in parts]
        assert {one.root for one in found[0]} == chosen
        assert sorted(found[0] + found[1]) == sorted(each_root(whole))


@pytest.mark.parametrize("kind", IDS)
def test_a_part_can_be_taken_apart_again(kind: str) -> None:
    whole = entry(item(1 << 20, IDS[kind](50), [1 + i % 4 for i in range(50)], 50))
    _, rest = split_items(whole, lambda root: root % 3 == 0)
    part, _ = split_items(entry(rest), lambda root: root % 2 == 0)
    expected = [one for one in each_root(whole) if one.root % 3 and one.root % 2 == 0]
    assert each_root(entry(part)) == expected


def test_none_and_all_are_parts_too() -> None:
    whole = entry(item(1 << 20, ["a", "b"], 1, 2))
    assert split_items(whole, lambda root: False)[0] == split_items(whole, lambda root: True)[1] == b""
    assert each_root(entry(split_items(whole, lambda root: True)[0])) == each_root(whole)
