"""Packed bytes are spelt once in Python and once in Lua: what one side writes, the other reads."""

from __future__ import annotations

import random
from dataclasses import dataclass
from struct import pack
from typing import Any

import numpy as np
import pytest

from redis_acker import Token
from redis_acker.store.batches import ack_batches, root_batches
from redis_acker.store.heads import Head, read_head
from redis_acker.store.ids import U64Array
from redis_acker.store.message_ids import check_attempts, check_message_ids
from redis_acker.store.packed import pack_ids, read_items, unpack_ids
from redis_acker.store.run_records import SUNK, PartitionProgress
from redis_acker.store.scripts import assemble
from tests.backends import Servers, make_backend

SIZES = [1, 2, 7, 8, 9, 16, 17, 64, 500, 1024]
"""Of blocks: around those that keep their ack vals in the head, and those whose bitmap fills its bytes."""

SHARD_ARGS = (3, "", "")


@dataclass
class Lua:
    """Runs a piece of Lua behind the libraries it needs, with its arguments in args[4] and on."""

    client: Any

    def __call__(self, body: str, *args: Any) -> Any:
        return self.client.eval(assemble(body), 0, *SHARD_ARGS, *args)


@pytest.fixture(scope="module", params=["fake", "redis-7.0"])
def lua(request: pytest.FixtureRequest, servers: Servers) -> Lua:
    return Lua(make_backend(request.param, servers).client())


def some_of(dice: random.Random, size: int) -> list[int]:
    """Indexes of a block, ascending: one, few, many or all."""
    return sorted(dice.sample(range(size), dice.choice([1, 1 + size // 20, 1 + size // 2, size])))


def bitmap_of(size: int, indexes: list[int]) -> bytes:
    return sum(1 << index for index in indexes).to_bytes((size + 7) // 8, "little")


# -- heads ---------------------------------------------------------------------------------------------------------

WRITE_HEAD = """-- needs: shard, head
local function given(text) if text ~= '' then return text end end
return write_head({ flags = tonumber(args[4]), n = tonumber(args[5]), birth = args[6], vals = args[7],
  live = tonumber(args[8]), bitmap = given(args[9]), ticks = given(args[10]), fails = args[11],
  words = args[12], tokens = args[13] })
"""
READ_HEAD = """-- needs: shard, head
local record = read_head(args[4])
return { record.flags, record.n, record.birth, record.vals or '', record.live, record.bitmap or '', record.ticks or '',
  record.fails, record.words, record.tokens }
"""
FLAGS = "-- needs: shard, head\nreturn { INITIALISED, QUIET, HAS_IDS, ECHO }"
INITIALISED, HAS_BITMAP, HAS_TICKS, QUIET, HAS_IDS, ECHO, HAS_FAILS, HAS_WORDS = (1 << bit for bit in range(8))
FOR_ALL = 1 << 31


@dataclass
class Record:
    """A record with anything in it, and its head as the header of lua/lib/head.lua describes it."""

    flags: int
    size: int
    birth: int
    vals: bytes
    live: list[int]
    bitmap: bytes
    ticks: tuple[int, ...]
    """One that is for all roots has its top bit set."""
    fails: bytes
    words: bytes
    tokens: bytes

    @classmethod
    def random(cls, dice: random.Random, size: int) -> Record:
        has_bitmap, has_ticks, has_fails, has_words = (dice.random() < 0.5 for _ in range(4))
        has_bitmap, has_ticks = has_bitmap and size > 0, has_ticks and size > 0
        live = some_of(dice, size) if has_bitmap else list(range(size))
        kept = [flag for flag in (INITIALISED, QUIET, HAS_IDS, ECHO) if dice.random() < 0.5]
        return cls(
            sum(kept) + has_bitmap * HAS_BITMAP + has_ticks * HAS_TICKS + has_fails * HAS_FAILS + has_words * HAS_WORDS,
            size,
            dice.getrandbits(40),
            dice.randbytes(8 * size) if size <= 8 else b"",
            live,
            bitmap_of(size, live) if has_bitmap else b"",
            _random_ticks(dice, size) if has_ticks else (),
            dice.randbytes(dice.randint(1, 300)) if has_fails else b"",
            dice.randbytes(10 * dice.randint(1, 30)) if has_words else b"",
            b"".join(Token(dice.randbytes(8), dice.getrandbits(32)).packed() for _ in range(dice.randint(0, 3))),
        )

    def fields(self) -> list[Any]:
        """In the order of the snippets above."""
        ticks = pack(f">{len(self.ticks)}I", *self.ticks)
        counts = [self.flags, self.size, self.birth.to_bytes(5, "big"), self.vals]
        return [*counts, len(self.live), self.bitmap, ticks, self.fails, self.words, self.tokens]

    def head(self) -> bytes:
        flags, size, birth, vals, live, bitmap, ticks, fails, words, tokens = self.fields()
        counted = pack(">H", live) + bitmap if bitmap else b""
        sized = pack(">I", len(fails)) + fails if fails else b""
        sized += pack(">H", len(words) // 10) + words if words else b""
        return bytes(pack(">BH", flags, size) + birth + vals + counted + ticks + sized + tokens)


def _random_ticks(dice: random.Random, size: int) -> tuple[int, ...]:
    if dice.random() < 0.5:
        return (FOR_ALL + dice.getrandbits(31),)
    return tuple(dice.getrandbits(31) for _ in range(size))


def test_a_head_that_lua_writes_is_read_by_python(lua: Lua) -> None:
    dice = random.Random("heads written")
    for size in [0, *SIZES] * 20:
        record = Record.random(dice, size)
        written = lua(WRITE_HEAD, *record.fields())
        assert written == record.head()
        initialised = bool(record.flags & INITIALISED)
        ticks = (
            tuple(tick - FOR_ALL for tick in record.ticks * size) if record.ticks[:1] >= (FOR_ALL,) else record.ticks
        )
        assert read_head(written) == Head(initialised, size, record.birth, record.live, ticks or None)


def test_a_head_is_read_by_lua_as_it_is_described(lua: Lua) -> None:
    dice = random.Random("heads read")
    for size in [0, *SIZES] * 20:
        record = Record.random(dice, size)
        assert lua(READ_HEAD, record.head()) == record.fields()
    assert lua(FLAGS) == [INITIALISED, QUIET, HAS_IDS, ECHO]


# -- ids and items -------------------------------------------------------------------------------------------------

SLICE_IDS = """-- needs: shard, ids
local indexes = {}
for i = 6, #args do indexes[#indexes + 1] = tonumber(args[i]) end
return slice_ids(args[4], tonumber(args[5]), indexes)
"""
WRITE_ITEM = """-- needs: shard, items
local indexes = nil
for i = 10, #args do
  indexes = indexes or {}
  indexes[#indexes + 1] = tonumber(args[i])
end
local record = { n = tonumber(args[6]), live = tonumber(args[7]), birth = args[5] }
if args[8] ~= '' then record.bitmap = args[8] end
return write_item(args[4], record, indexes, args[9])
"""


def random_ids(dice: random.Random, size: int) -> tuple[list[Any], list[int], bytes]:
    """Message ids and attempts of one of all kinds and layouts, and how Python packs them."""
    first = dice.randrange(-(2**63), 2**63 - size)
    kinds: list[Any] = [
        None,
        list(range(first, first + size)),
        [dice.randrange(-(2**63), 2**63) for _ in range(size)],
        [f"{dice.getrandbits(32):08x}" for _ in range(size)],
        ["é" * dice.randint(0, 5) for _ in range(size)],
        [dice.randbytes(5) for _ in range(size)],
        [dice.randbytes(dice.randint(0, 30)) for _ in range(size)],
    ]
    ids = dice.choice(kinds)
    attempts = dice.choice([[1] * size, [65_534] * size, [dice.randint(1, 65_534) for _ in range(size)]])
    checked = None if ids is None else check_message_ids(ids, size)
    return ids or [None] * size, attempts, pack_ids(checked, check_attempts(attempts, size))


def test_python_reads_the_part_that_lua_cuts_out_of_packed_ids(lua: Lua) -> None:
    dice = random.Random("ids")
    for size in SIZES * 20:
        ids, attempts, packed = random_ids(dice, size)
        if packed:
            indexes = some_of(dice, size)
            part = lua(SLICE_IDS, packed, size, *indexes)
            assert unpack_ids(part, indexes) == ([ids[i] for i in indexes], [attempts[i] for i in indexes])


@dataclass
class Block:
    """A block some of whose roots are live, and of these some come to their final event."""

    number: int
    birth: int
    size: int
    live: list[int]
    ids: list[Any]
    attempts: list[int]
    packed_ids: bytes

    @classmethod
    def random(cls, dice: random.Random, size: int) -> Block:
        number, birth, live = dice.getrandbits(54) << 10, dice.getrandbits(40), some_of(dice, size)
        return cls(number, birth, size, live, *random_ids(dice, size))

    def write(self, lua: Lua, indexes: list[int]) -> bytes:
        """indexes: none for all that are live."""
        bitmap = bitmap_of(self.size, self.live) if len(self.live) < self.size else b""
        head = (self.number.to_bytes(8, "big"), self.birth.to_bytes(5, "big"), self.size, len(self.live), bitmap)
        return bytes(lua(WRITE_ITEM, *head, self.packed_ids, *indexes))


def test_items_that_lua_writes_are_read_by_python(lua: Lua) -> None:
    """Also back to back, as they stand in a stream entry."""
    dice = random.Random("items")
    written, blocks, expected = b"", [], []
    for size in SIZES * 20:
        block = Block.random(dice, size)
        part = dice.choice([[], sorted(dice.sample(block.live, dice.randint(1, len(block.live))))])
        written += block.write(lua, part)
        blocks.append(block)
        expected.append(part or block.live)
    items = list(read_items(written))
    assert [(item.block, item.birth) for item in items] == [(block.number, block.birth) for block in blocks]
    assert [list(item.indexes) for item in items] == expected
    for item, block in zip(items, blocks, strict=True):
        of_roots = [block.ids[i] for i in item.indexes], [block.attempts[i] for i in item.indexes]
        assert unpack_ids(item.packed_ids, item.indexes) == of_roots


# -- batches -------------------------------------------------------------------------------------------------------

READ_ROOTS = """-- needs: shard, batch
local blocks, indexes = read_roots(args[4])
local result = {}
for i = 1, #blocks do result[i] = { blocks[i], indexes[i] } end
return result
"""
READ_PAIRS = """-- needs: shard, batch
local blocks, amounts, words = read_pairs(args[4])
local result = {}
for i = 1, #blocks do
  local flat = {}
  for index, word in pairs(words[i]) do
    flat[#flat + 1] = index
    flat[#flat + 1] = word
  end
  result[i] = { blocks[i], amounts[i], flat }
end
return result
"""


def random_roots(dice: random.Random) -> U64Array:
    """A few roots of each of some blocks, the largest numbers among them."""
    blocks = [dice.getrandbits(54) << 10 for _ in range(20)] + [0, 2**64 - 2**10]
    roots = {block + index for block in blocks for index in dice.sample(range(1024), dice.randint(1, 8))}
    return np.array(sorted({*roots, 2**64 - 1}), dtype=np.uint64)


def test_roots_that_python_names_are_read_by_lua(lua: Lua) -> None:
    roots = random_roots(random.Random("roots"))
    found = [
        int.from_bytes(block, "big") + index
        for batch in root_batches(roots, 2, 1024)
        for block, indexes in lua(READ_ROOTS, b"".join(batch.sparse))
        for index in indexes
    ]
    assert sorted(found) == roots.tolist()


def test_ack_vals_that_python_sends_as_pairs_are_read_by_lua(lua: Lua) -> None:
    dice = random.Random("pairs")
    roots = random_roots(dice)
    ack_vals = np.array([dice.getrandbits(64) for _ in roots], dtype=np.uint64)
    found: dict[int, int] = {}
    for batch in ack_batches(roots, ack_vals, 2, 1024):
        assert not batch.dense
        for block, amount, flat in lua(READ_PAIRS, b"".join(batch.sparse)):
            words = dict(zip(flat[::2], flat[1::2], strict=True))
            assert len(words) == amount
            found |= {int.from_bytes(block, "big") + i: int.from_bytes(word, "little") for i, word in words.items()}
    assert found == dict(zip(roots.tolist(), ack_vals.tolist(), strict=True))


# -- the progress of Spark runs ------------------------------------------------------------------------------------


def test_the_progress_of_a_partition_that_lua_writes_is_read_by_python(lua: Lua) -> None:
    sums = {"done_sum": f"{7:016x}", "sum": f"{8:016x}"}
    numbers = {"done": 1 << 40, "failed": 3, "rows": 4, "stage": 1, "touched_ms": 1 << 41, "now_failed": 2}
    left = {"left_rows": 9, "left_first": str(1 << 40)}
    fields = {**numbers, **sums, **left, "first": str(1 << 41)}
    body = "".join(f"partition.{name} = {value!r}\n" for name, value in fields.items())
    text = lua(f"-- needs: portion\nlocal partition = {{}}\n{body}return write_partition(partition)").decode()

    known = {**numbers, "sum": 8, "left_rows": 9, "left_first": 1 << 40, "first": 1 << 41}
    assert vars(PartitionProgress.read("0:5", text)) == {"partition": "0:5", **known}
    read = "-- needs: portion\nlocal read = read_partition(ARGV[4])\nreturn { read.done_sum, read.sum, SUNK }"
    assert lua(read, text) == [sums["done_sum"].encode(), sums["sum"].encode(), SUNK]
