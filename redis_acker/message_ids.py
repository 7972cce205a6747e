"""Message ids and attempts of a block, packed for the store as lua/lib/items.lua describes.

Ids of one call are all text, all bytes or all integers, and come back as they went in.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from struct import pack, unpack_from
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redis_acker.errors import BadInput

MessageId: TypeAlias = "str | bytes | int"
MessageIds: TypeAlias = "Sequence[MessageId] | NDArray[np.integer[Any]] | TextIds"

MAX_ID_BYTES = 1024
"""Longest message id: ids are kept in Redis memory until their block is done. Keep long payloads elsewhere."""

MAX_ATTEMPT = 0xFFFE
_ATTEMPT_EACH = 0xFFFF
_NO_ID = b"n"


class TextIds:
    """Many ids, all text or all bytes, as columnar formats hold them: one after the other in one buffer.

    A million of them are packed without a Python object for each.
    """

    def __init__(self, ends: NDArray[np.int64], data: memoryview, *, text: bool) -> None:
        """ends holds where in data the first id begins, then where each one ends."""
        self._ends, self._data, self.text = ends, data, text

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, part: slice) -> TextIds:
        return TextIds(self._ends[part.start : part.stop + 1], self._data, text=self.text)

    def longest(self) -> int:
        return int(np.diff(self._ends).max(initial=0))

    def pack(self) -> tuple[bytes, bytes, bytes]:
        """Kind, layout and body, as pack_ids() puts them together."""
        sizes = np.diff(self._ends)
        joined = bytes(self._data[int(self._ends[0]) : int(self._ends[-1])])
        kind = b"s" if self.text else b"b"
        if bool((sizes == sizes[0]).all()):
            return kind, b"F", pack(">H", int(sizes[0])) + joined
        return kind, b"V", (self._ends[1:] - self._ends[0]).astype(">u4").tobytes() + joined


def check_message_ids(ids: MessageIds, count: int) -> Sequence[MessageId] | NDArray[np.int64] | TextIds:
    """The ids of one call, all of one kind; raises BadInput otherwise."""
    if isinstance(ids, TextIds):
        _check_count(len(ids), count)
        _check_size(ids.longest())
        return ids
    if isinstance(ids, np.ndarray):
        return _check_array(ids, count)
    if isinstance(ids, (str, bytes, set, frozenset, Mapping)) or not hasattr(ids, "__len__"):
        raise BadInput(f"message_ids must be a sequence with one id for each root, not {reprlib.repr(ids)}.")
    _check_count(len(ids), count)
    ids = list(ids)
    kinds = {type(one) for one in ids}
    if len(kinds) > 1 or not kinds <= {str, bytes, int}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise BadInput(f"message_ids must be all str, all bytes or all int, not {names}: convert them first.")
    if kinds == {int}:
        if any(not -(1 << 63) <= one < 1 << 63 for one in ids):  # type: ignore[operator]
            raise BadInput("An integer message id must fit in a signed 64-bit number: pass larger ones as text.")
        return np.asarray(ids, dtype=np.int64)
    for one in ids:
        _check_size(len(_encode(one)))
    return ids


def _check_size(size: int) -> None:
    if size > MAX_ID_BYTES:
        raise BadInput(
            f"A message id of {size} bytes is over the limit of {MAX_ID_BYTES}: keep the message elsewhere and "
            "pass its key."
        )


def _check_array(ids: NDArray[Any], count: int) -> NDArray[np.int64]:
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise BadInput(f"An array of message_ids must be flat and of integers, not {ids.dtype} of shape {ids.shape}.")
    _check_count(len(ids), count)
    if ids.dtype.kind == "u" and bool((ids.astype(np.uint64) >> np.uint64(63)).any()):
        raise BadInput("An integer message id must fit in a signed 64-bit number: pass larger ones as text.")
    return ids.astype(np.int64)


def _check_count(found: int, count: int) -> None:
    if found != count:
        raise BadInput(f"message_ids must have one id for each root: {count} roots, {found} ids.")


def _encode(one: Any) -> bytes:
    try:
        return one.encode() if isinstance(one, str) else bytes(one)
    except UnicodeEncodeError:
        raise BadInput(f"The message id {one!r} is no valid text: pass it as bytes.") from None


def check_attempts(attempts: int | Sequence[int], count: int) -> int | NDArray[np.uint16]:
    """The attempt of every root: one number for all, or one each."""
    if isinstance(attempts, (str, bytes, set, frozenset)) or not isinstance(attempts, (int, np.integer, Iterable)):
        raise BadInput(f"attempts must be one number, or one for each root, not {reprlib.repr(attempts)}.")
    single = isinstance(attempts, (int, np.integer))
    each: list[Any] = list(attempts) if isinstance(attempts, Iterable) else [attempts]
    if not single and len(each) != count:
        raise BadInput(f"attempts must be one number, or one for each root: {count} roots, {len(each)} attempts.")
    for attempt in each:
        whole = isinstance(attempt, (int, np.integer)) and not isinstance(attempt, bool)
        if not whole or not 1 <= attempt <= MAX_ATTEMPT:
            raise BadInput(f"An attempt is a number from 1 to {MAX_ATTEMPT}, not {attempt!r}.")
    if len(set(each)) == 1:
        return int(each[0])
    return np.asarray(each, dtype=">u2")


def pack_ids(
    ids: Sequence[MessageId] | NDArray[np.int64] | TextIds | None, attempts: int | NDArray[np.uint16]
) -> bytes:
    """One block's ids and attempts; empty where there is nothing to say (no ids, first attempt)."""
    if ids is None and isinstance(attempts, int) and attempts == 1:
        return b""
    kind, layout, body = (_NO_ID, b"F", pack(">H", 0)) if ids is None else _pack_body(ids)
    if isinstance(attempts, int):
        return kind + layout + pack(">H", attempts) + body
    return kind + layout + pack(">H", _ATTEMPT_EACH) + attempts.tobytes() + body


def _pack_body(ids: Sequence[MessageId] | NDArray[np.int64] | TextIds) -> tuple[bytes, bytes, bytes]:
    if isinstance(ids, TextIds):
        return ids.pack()
    if isinstance(ids, np.ndarray):
        # The ends tell too: a difference of int64 numbers may wrap around.
        if int(ids[-1]) - int(ids[0]) == len(ids) - 1 and bool((np.diff(ids) == 1).all()):
            return b"i", b"R", pack(">q", int(ids[0]))
        return b"i", b"F", pack(">H", 8) + ids.astype(">i8").tobytes()
    kind = b"s" if isinstance(ids[0], str) else b"b"
    texts = [_encode(one) for one in ids]
    sizes = [len(text) for text in texts]
    if len(set(sizes)) == 1:
        return kind, b"F", pack(">H", sizes[0]) + b"".join(texts)
    return kind, b"V", np.fromiter(accumulate(sizes), dtype=">u4").tobytes() + b"".join(texts)


def unpack_ids(packed: bytes, indexes: Sequence[int]) -> tuple[list[MessageId | None], list[int]]:
    """Ids and attempts of the roots with these indexes, from packed ids that hold just these roots."""
    count = len(indexes)
    if not packed:
        return [None] * count, [1] * count
    kind, layout, attempt = packed[:1], packed[1:2], unpack_from(">H", packed, 2)[0]
    attempts, at = [attempt] * count, 4
    if attempt == _ATTEMPT_EACH:
        attempts, at = list(unpack_from(f">{count}H", packed, at)), at + 2 * count
    if kind == _NO_ID:
        return [None] * count, attempts
    if layout == b"R":
        first = unpack_from(">q", packed, at)[0]
        return [first + index for index in indexes], attempts
    texts: list[bytes] = []
    if layout == b"F":
        width = unpack_from(">H", packed, at)[0]
        texts = [packed[at + 2 + width * i : at + 2 + width * (i + 1)] for i in range(count)]
    else:
        ends = unpack_from(f">{count}I", packed, at)
        blob = packed[at + 4 * count :]
        texts = [blob[start:end] for start, end in pairwise((0, *ends))]
    if kind == b"i":
        return [unpack_from(">q", text)[0] for text in texts], attempts
    return [text.decode() if kind == b"s" else text for text in texts], attempts
