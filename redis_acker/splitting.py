"""Takes the items of a stream entry apart, so that some of its roots can be dealt with and the others stay.

lua/lib/items.lua describes the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from struct import pack, unpack_from

from redis_acker.outcomes import Outcome

_LIST = 1
_ATTEMPT_EACH = 0xFFFF


def split_items(outcome: Outcome, is_chosen: Callable[[int], bool]) -> tuple[bytes, bytes]:
    """The items of the roots that are chosen, and those of the others. Either may be empty."""
    chosen: list[bytes] = []
    others: list[bytes] = []
    for item in outcome.items:
        choices = [is_chosen(item.block + index) for index in item.indexes]
        for pieces, wanted in ((chosen, True), (others, False)):
            positions = [position for position, choice in enumerate(choices) if choice is wanted]
            if positions:
                pieces.append(_pack_item(item.block, item.birth, item.indexes, item.packed_ids, positions))
    return b"".join(chosen), b"".join(others)


def _pack_item(block: int, birth: int, indexes: Sequence[int], packed_ids: bytes, positions: Sequence[int]) -> bytes:
    ids = slice_ids(packed_ids, len(indexes), positions)
    head = pack(">Q5sBH", block, birth.to_bytes(5, "big"), _LIST, len(positions))
    listed = pack(f">{len(positions)}H", *(indexes[position] for position in positions))
    return head + listed + pack(">I", len(ids)) + ids


def slice_ids(packed: bytes, count: int, positions: Sequence[int]) -> bytes:
    """The packed ids and attempts of some of count roots."""
    if not packed:
        return b""
    layout, (attempt,) = packed[1:2], unpack_from(">H", packed, 2)
    pieces, at = [packed[:4]], 4
    if attempt == _ATTEMPT_EACH:
        pieces += [packed[at + 2 * one : at + 2 * one + 2] for one in positions]
        at += 2 * count
    if layout == b"R":  # its reader counts from the first root of the block
        return b"".join([*pieces, packed[at:]])
    if layout == b"F":
        (width,) = unpack_from(">H", packed, at)
        start = at + 2
        texts = [packed[start + width * one : start + width * (one + 1)] for one in positions]
        return b"".join([*pieces, packed[at:start], *texts])
    spans = list(pairwise((0, *unpack_from(f">{count}I", packed, at))))
    blob = packed[at + 4 * count :]
    texts = [blob[slice(*spans[one])] for one in positions]
    return b"".join([*pieces, *(pack(">I", end) for end in accumulate(map(len, texts))), *texts])
