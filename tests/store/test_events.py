"""Final events, parsed from the entries of a stream."""

from struct import pack
from typing import Any

import pytest

from redis_acker import Completion, Failure
from redis_acker.store.packed import age_ms, bits_of
from redis_acker.store.streams import parse_entry

NOW_MS = 1_800_000_000_000
BIRTH = (NOW_MS - 500) & 0xFF_FFFF_FFFF
BLOCK = 0xFFF0_0000_0000_0400


def item(
    kind: int, count: int, body: bytes = b"", ids: bytes = b"", *, block: int = BLOCK, birth: int = BIRTH
) -> bytes:
    return pack(">Q", block) + birth.to_bytes(5, "big") + pack(">BH", kind, count) + body + pack(">I", len(ids)) + ids


def completion(*items: bytes) -> Completion:
    found = parse_entry("completions", 3, b"1-2", [b"at_ms", str(NOW_MS).encode(), b"items", b"".join(items)])
    assert isinstance(found, Completion)
    return found


def test_an_item_may_be_a_whole_block() -> None:
    found = completion(item(0, 3))
    assert found.roots.tolist() == [BLOCK, BLOCK + 1, BLOCK + 2]
    assert (found.entry, found.shard, found.at_ms, len(found)) == ("1-2", 3, NOW_MS, 3)
    assert found.ages_ms == [500, 500, 500]


def test_an_item_may_be_a_list() -> None:
    assert completion(item(1, 3, pack(">3H", 0, 7, 1023))).roots.tolist() == [BLOCK, BLOCK + 7, BLOCK + 1023]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 1024])
def test_an_item_may_be_a_bitmap(size: int) -> None:
    bits = [index for index in range(size) if index % 3 == 0]
    bitmap = sum(1 << index for index in bits).to_bytes((size + 7) // 8, "little")
    assert completion(item(2, size, bitmap)).roots.tolist() == [BLOCK + index for index in bits]
    assert bits_of(bitmap) == bits


def test_items_stand_back_to_back() -> None:
    other = item(1, 1, pack(">H", 5), block=1024, birth=BIRTH - 100)
    ids = b"sF\0\2" + b"\0\1" + b"ab"
    found = completion(item(0, 2, ids=ids), other, item(2, 9, b"\x01\x01"))
    assert found.roots.tolist() == [BLOCK, BLOCK + 1, 1029, BLOCK, BLOCK + 8]
    assert found.message_ids == ["a", "b", None, None, None]
    assert found.attempts == [2, 2, 1, 1, 1]
    assert found.ages_ms == [500, 500, 600, 500, 500]
    assert len(found) == 5


def test_ids_of_a_range_count_by_index() -> None:
    ids = b"iR\0\1" + pack(">q", -3)
    assert completion(item(1, 2, pack(">2H", 1, 4), ids)).message_ids == [-2, 1]


def failure(**changes: bytes) -> Failure:
    fields: dict[str, Any] = {"at_ms": str(NOW_MS).encode(), "reason": b"failed", "component": b"parse"}
    fields |= {"error": "brokén".encode(), "fatal": b"1", "items": item(0, 1)} | changes
    flat = [part for name, value in fields.items() for part in (name.encode(), value)]
    found = parse_entry("failures", 0, b"1-1", flat)
    assert isinstance(found, Failure)
    return found


def test_a_failure_says_why() -> None:
    found = failure()
    assert (found.reason, found.component, found.error, found.fatal) == ("failed", "parse", "brokén", True)
    assert found.roots.tolist() == [BLOCK]
    assert not failure(fatal=b"0").fatal


def test_text_that_is_no_utf8_does_not_stop_the_reader() -> None:
    assert failure(error=b"\xff").error == "\ufffd"


@pytest.mark.parametrize(
    ("now_ms", "birth", "age"),
    [
        (5000, 4000, 1000),
        (5000, 5000, 0),
        (5000, 6000, 0),  # the clock was set back
        ((1 << 40) + 5, (1 << 40) - 5, 10),  # the low 40 bits have come round
        (7 * (1 << 40) + 5, 5, 0),
    ],
)
def test_an_age_is_told_from_the_low_40_bits_of_the_birth(now_ms: int, birth: int, age: int) -> None:
    assert age_ms(now_ms, birth & 0xFF_FFFF_FFFF) == age
