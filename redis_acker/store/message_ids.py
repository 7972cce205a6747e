"""Message ids and attempts as callers pass them, and ids as text and in JSON.

The ids of one call are all text, all bytes or all integers, and come back as they went in.
"""

from __future__ import annotations

import base64
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from redis_acker.errors import BadInput

MessageId: TypeAlias = "str | bytes | int"
MessageIds: TypeAlias = "Sequence[MessageId] | NDArray[np.integer[Any]] | TextIds"
CheckedIds: TypeAlias = "Sequence[MessageId] | NDArray[np.int64] | TextIds"
"""Ids of one kind, as check_message_ids() gives them."""

MAX_ID_BYTES = 1024
"""Longest message id: ids are kept in Redis memory until their block is done. Keep long payloads elsewhere."""

MAX_ATTEMPT = 0xFFFE


class TextIds:
    """Many ids, all text or all bytes, as columnar formats hold them: one after the other in one buffer.

    A million of them are packed without a Python object for each.
    """

    def __init__(self, ends: NDArray[np.int64], data: memoryview, *, text: bool) -> None:
        """ends holds where in data the first id begins, then where each one ends."""
        self.ends, self.data, self.text = ends, data, text

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, part: slice) -> TextIds:
        return TextIds(self.ends[part.start : part.stop + 1], self.data, text=self.text)

    def longest(self) -> int:
        return int(np.diff(self.ends).max(initial=0))


def check_message_ids(ids: MessageIds, count: int) -> CheckedIds:
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
        _check_size(len(encode(one)))
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


def encode(one: Any) -> bytes:
    """The bytes of a text or of bytes."""
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


# -- ids as text and in JSON, with their type ------------------------------------------------------------------------


def id_to_text(message_id: MessageId) -> str:
    """An id and its type as one text: i:7 is the number, s:7 the text, b:Nw== the bytes in base64."""
    if isinstance(message_id, bytes):
        return f"b:{base64.b64encode(message_id).decode()}"
    return f"{'i' if isinstance(message_id, int) else 's'}:{message_id}"


def id_from_text(text: str) -> MessageId:
    kind, _, rest = text.partition(":")
    try:
        if kind == "b":
            return base64.b64decode(rest, validate=True)
        if kind == "i":
            return int(rest)
        encode(rest)
        return rest
    except ValueError:
        raise BadInput(f"{reprlib.repr(text)} is not a message id: use digits after i: and base64 after b:.") from None


def id_to_json(message_id: MessageId | None) -> Any:
    """An id in JSON: a number, a text, or {"base64": ...} for bytes; null without one."""
    if isinstance(message_id, bytes):
        return {"base64": base64.b64encode(message_id).decode()}
    return message_id


def id_from_json(value: Any) -> MessageId | None:
    try:
        if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
            value = base64.b64decode(value["base64"], validate=True)
    except ValueError:
        raise BadInput(f"{reprlib.repr(value['base64'])} is not base64.") from None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, str, bytes)):
        raise BadInput(f'A message id is a number, a text or {{"base64": ...}}, not {reprlib.repr(value)}.')
    check_message_ids([value], 1)
    return value
