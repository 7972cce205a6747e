"""The one codec of packed bytes: items, message ids, roots on their way to a script, anchors. Heads are in heads.py.

lua/lib/ is the other side (head, items, ids, batch) and describes the formats. Integers are big-endian, ack vals
little-endian, so that arrays of them travel as they lie in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from struct import error as StructError
from struct import iter_unpack, pack, unpack_from

import numpy as np
from numpy.typing import NDArray

from redis_acker.errors import Unreadable
from redis_acker.store.ids import MAX_BLOCK_SIZE, U64Array
from redis_acker.store.message_ids import CheckedIds, MessageId, TextIds, encode


@contextmanager
def whole(what: str) -> Iterator[None]:
    """Raises Unreadable for what ends too early, or is no text."""
    try:
        yield
    except (StructError, UnicodeDecodeError):
        raise Unreadable(f"{what} is cut off, or not what it says") from None


def age_ms(now_ms: int, birth: int) -> int:
    """The age of a record of whose birth time the low 40 bits are kept; 0 if the clock was set back since."""
    age = (now_ms - birth) & ((1 << 40) - 1)
    return age if age < 1 << 39 else 0


def bits_of(bitmap: bytes) -> list[int]:
    """The positions of the bits that are set, ascending."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")).tolist()


# -- items: what a stream entry says of the roots of one block -----------------------------------------------------

_ALL, _LIST, _BITMAP = 0, 1, 2
_ITEM = ">Q5sBH"
_ITEM_BYTES = 16
_MOST_ROOTS = 1 << 16  # in one entry: a script puts some thousands into one


@dataclass(frozen=True)
class Item:
    """The roots of one block in a stream entry."""

    block: int
    birth: int
    indexes: Sequence[int]
    packed_ids: bytes


def read_items(data: bytes) -> tuple[Item, ...]:
    """Raises Unreadable for what no script has written."""
    items: list[Item] = []
    roots = 0
    with whole("an item"):
        for item in _items(data):
            roots += len(item.indexes)
            items.append(item)
            if roots > _MOST_ROOTS:
                break
    if not 0 < roots <= _MOST_ROOTS:
        raise Unreadable(f"an entry has no root, or more than {_MOST_ROOTS}")
    return tuple(items)


def _items(data: bytes) -> Iterator[Item]:
    at = 0
    while at < len(data):
        block, birth, kind, count = unpack_from(_ITEM, data, at)
        if block % MAX_BLOCK_SIZE or not count <= MAX_BLOCK_SIZE or kind > _BITMAP:
            raise Unreadable(f"{count} roots of kind {kind} are not of one block")
        at += _ITEM_BYTES
        if kind == _ALL:
            indexes: Sequence[int] = range(count)
        elif kind == _LIST:
            indexes = list(unpack_from(f">{count}H", data, at))
            at += 2 * count
        else:
            indexes = bits_of(data[at : at + (count + 7) // 8])
            at += (count + 7) // 8
        (size,) = unpack_from(">I", data, at)
        packed_ids = data[at + 4 : at + 4 + size]
        at += 4 + size
        if at > len(data) or (kind != _ALL and max(indexes, default=0) >= MAX_BLOCK_SIZE):
            raise Unreadable("an item is cut off, or has roots that no block has")
        check_ids(packed_ids, len(indexes))
        yield Item(block, int.from_bytes(birth, "big"), indexes, packed_ids)


# -- ids: the message ids and attempts of a block, or of some of its roots -----------------------------------------

_NO_ID, _TEXT, _BYTES, _INTEGER = b"n", b"s", b"b", b"i"
_RANGE, _FIXED, _VARIED = b"R", b"F", b"V"
_ATTEMPT_EACH = 0xFFFF


def pack_ids(ids: CheckedIds | None, attempts: int | NDArray[np.uint16]) -> bytes:
    """One block's ids and attempts, both checked; empty where there is nothing to say (no ids, first attempt)."""
    if ids is None and isinstance(attempts, int) and attempts == 1:
        return b""
    kind_and_layout, body = (_NO_ID + _FIXED, pack(">H", 0)) if ids is None else _pack_body(ids)
    if isinstance(attempts, int):
        return kind_and_layout + pack(">H", attempts) + body
    return kind_and_layout + pack(">H", _ATTEMPT_EACH) + attempts.astype(">u2").tobytes() + body


def _pack_body(ids: CheckedIds) -> tuple[bytes, bytes]:
    if isinstance(ids, np.ndarray):
        # The ends tell too: a difference of int64 numbers may wrap around.
        if int(ids[-1]) - int(ids[0]) == len(ids) - 1 and bool((np.diff(ids) == 1).all()):
            return _INTEGER + _RANGE, pack(">q", int(ids[0]))
        return _INTEGER + _FIXED, pack(">H", 8) + ids.astype(">i8").tobytes()
    if isinstance(ids, TextIds):
        return _pack_column(ids)
    kind = _TEXT if isinstance(ids[0], str) else _BYTES
    texts = [encode(one) for one in ids]
    sizes = [len(text) for text in texts]
    if len(set(sizes)) == 1:
        return kind + _FIXED, pack(">H", sizes[0]) + b"".join(texts)
    return kind + _VARIED, pack(f">{len(sizes)}I", *accumulate(sizes)) + b"".join(texts)


def _pack_column(ids: TextIds) -> tuple[bytes, bytes]:
    """Without a Python object for each id."""
    kind, sizes = _TEXT if ids.text else _BYTES, np.diff(ids.ends)
    joined = bytes(ids.data[int(ids.ends[0]) : int(ids.ends[-1])])
    if bool((sizes == sizes[0]).all()):
        return kind + _FIXED, pack(">H", int(sizes[0])) + joined
    return kind + _VARIED, (ids.ends[1:] - ids.ends[0]).astype(">u4").tobytes() + joined


def check_ids(packed: bytes, count: int) -> None:
    """Raises Unreadable for ids that are not those of so many roots."""
    if packed:
        with whole("message ids"):
            _check_ids(packed, count)


def _check_ids(packed: bytes, count: int) -> None:
    kind, layout, (attempt,) = packed[:1], packed[1:2], unpack_from(">H", packed, 2)
    at = 4 + (2 * count if attempt == _ATTEMPT_EACH else 0)
    if kind == _NO_ID or layout == _RANGE:
        expected = at + (2 if kind == _NO_ID else 8)
    elif layout == _FIXED:
        expected = at + 2 + count * unpack_from(">H", packed, at)[0]
    else:
        ends = (0, *unpack_from(f">{count}I", packed, at))
        expected = at + 4 * count + ends[-1]
        if any(start > end for start, end in pairwise(ends)):
            raise Unreadable("message ids overlap")
    is_known = kind in (_NO_ID, _TEXT, _BYTES, _INTEGER) and layout in (_RANGE, _FIXED, _VARIED)
    if not is_known or len(packed) != expected:
        raise Unreadable(f"{len(packed)} bytes are not the message ids of {count} roots")
    if kind == _INTEGER and layout != _RANGE and packed[1:2] + packed[at : at + 2] != _FIXED + b"\0\x08":
        raise Unreadable("message ids are no 64-bit numbers")
    if kind == _TEXT and not packed[at:].isascii():
        unpack_ids(packed, range(count))  # decodes each


def unpack_ids(packed: bytes, indexes: Sequence[int]) -> tuple[list[MessageId | None], list[int]]:
    """Ids and attempts of the roots with these indexes, from packed ids that hold just these roots."""
    count = len(indexes)
    if not packed:
        return [None] * count, [1] * count
    kind, layout, (attempt,) = packed[:1], packed[1:2], unpack_from(">H", packed, 2)
    attempts, at = [attempt] * count, 4
    if attempt == _ATTEMPT_EACH:
        attempts, at = list(unpack_from(f">{count}H", packed, at)), at + 2 * count
    if kind == _NO_ID:
        return [None] * count, attempts
    if layout == _RANGE:
        (first,) = unpack_from(">q", packed, at)
        return [first + index for index in indexes], attempts
    texts = _texts(packed, layout, at, count)
    if kind == _INTEGER:
        return [unpack_from(">q", text)[0] for text in texts], attempts
    return [text.decode() if kind == _TEXT else text for text in texts], attempts


def _texts(packed: bytes, layout: bytes, at: int, count: int) -> list[bytes]:
    """The bytes of each id."""
    if layout == _FIXED:
        (width,) = unpack_from(">H", packed, at)
        return [packed[at + 2 + width * i : at + 2 + width * (i + 1)] for i in range(count)]
    ends, blob = unpack_from(f">{count}I", packed, at), packed[at + 4 * count :]
    return [blob[start:end] for start, end in pairwise((0, *ends))]


# -- the quarantine: what could not be read, whole ------------------------------------------------------------------

_AT_MS_BYTES = 6


def pack_parts(parts: Iterable[bytes]) -> bytes:
    return b"".join(pack(">I", len(part)) + part for part in parts)


def read_set_aside(value: bytes) -> tuple[int, list[bytes]]:
    """When it was set aside, and its parts; all of it as one part if another program wrote that too."""
    parts, at = list[bytes](), _AT_MS_BYTES
    while at + 4 <= len(value):
        end = at + 4 + unpack_from(">I", value, at)[0]
        parts.append(value[at + 4 : end])
        at = end
    return (int.from_bytes(value[:_AT_MS_BYTES], "big"), parts) if at == len(value) else (0, [value])


# -- batches: blocks, indexes and ack vals on their way to a script -------------------------------------------------

INDEX_BYTES, ACK_VAL_BYTES, PAIR_BYTES, EDGE_BYTES = 2, 8, 10, 12


def pack_block(block: int) -> bytes:
    return pack(">Q", block)


def pack_blocks(blocks: U64Array) -> bytes:
    return blocks.astype(">u8").tobytes()


def unpack_expired(names: bytes, costs: bytes) -> tuple[U64Array, NDArray[np.int64]]:
    """Blocks, and what it costs to drain each."""
    return np.frombuffer(names, dtype=">u8").astype(np.uint64), np.frombuffer(costs, dtype=">u2").astype(np.int64)


def pack_count(block: int, count: int) -> bytes:
    """What comes before the count roots of a block."""
    return pack(">QH", block, count)


def pack_indexes(indexes: U64Array) -> bytes:
    return indexes.astype(">u2").tobytes()


def pack_ack_vals(ack_vals: U64Array) -> bytes:
    return ack_vals.astype("<u8", copy=False).tobytes()


def pack_pairs(indexes: U64Array, ack_vals: U64Array) -> bytes:
    """Each index and its ack val."""
    pairs = np.empty(len(indexes), dtype=[("index", ">u2"), ("ack_val", "<u8")])
    pairs["index"], pairs["ack_val"] = indexes, ack_vals
    return pairs.tobytes()


def pack_edges(indexes: U64Array, edges: U64Array) -> bytes:
    """Each edge and the index of its root, as a record remembers them (lua/lib/edges.lua)."""
    entries = np.empty(len(indexes), dtype=[("edge", "<u8"), ("index", ">u4")])
    entries["edge"], entries["index"] = edges, indexes
    return entries.tobytes()


# -- anchors: root and edge -----------------------------------------------------------------------------------------

ANCHOR_BYTES = 16

TRACE_BYTES = 25
"""Behind the anchors of a message that is traced: trace id(16) span id(8) flags(1). No multiple of ANCHOR_BYTES."""


def pack_anchors(edges: Mapping[int, int]) -> bytes:
    return b"".join(pack(">QQ", root, edge) for root, edge in edges.items())


def unpack_anchors(data: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Each root and its edge."""
    return iter_unpack(">QQ", data)


def split_anchors(data: bytes | bytearray) -> tuple[bytes | bytearray, bytes]:
    """The anchors alone, and the context of a trace behind them, if there is one."""
    if len(data) % ANCHOR_BYTES != TRACE_BYTES % ANCHOR_BYTES or len(data) < TRACE_BYTES:
        return data, b""
    return data[:-TRACE_BYTES], bytes(data[-TRACE_BYTES:])


def pack_anchor_arrays(roots: U64Array, edges: U64Array) -> bytes:
    return np.column_stack([roots, edges]).astype(">u8").tobytes()


def unpack_anchor_arrays(data: bytes) -> tuple[U64Array, U64Array]:
    """All roots, and the edge of each."""
    pairs = np.frombuffer(data, dtype=">u8").astype(np.uint64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()
