"""Values as people read them, on the terminal and on the page: on one line, without control characters."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypeAlias

from redis_acker.errors import BadInput, escaped

if TYPE_CHECKING:
    from redis_acker.store.message_ids import MessageId

Cell: TypeAlias = "str | int | float | None"


def shown(value: Cell) -> str:
    """A value as people read it: on one line, with thousands separators, without control characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return escaped(value)


def root_text(root: int) -> str:
    """A root or an ack val: 0x and 16 hex digits, also in JSON, where many programs read numbers to 53 bits only."""
    return f"0x{root:016x}"


def root_of(text: str) -> int:
    """A root as people write it: decimal, also signed, 0x and hex digits, or 16 bare hex digits."""
    text = text.strip()
    number = _number(text)
    if number is None:
        raise BadInput(
            f"{cut(text)!r} is not a root: use decimal digits (also signed), 0x and hex digits, or 16 hex digits."
        )
    if not -(1 << 63) <= number < 1 << 64:
        raise BadInput(f"{cut(text)!r} is not a root: it does not fit in 64 bits.")
    return number & 0xFFFF_FFFF_FFFF_FFFF


def cut(text: str, most: int = 60) -> str:
    """The beginning of a text that is too long for its place."""
    return text if len(text) <= most else f"{text[:most]}..."


_MOST_DIGITS = 100
"""Of a root, leading zeros included. Python refuses to read numbers of thousands of digits."""


def _number(text: str) -> int | None:
    """None for what is no number; one of too many digits is cut, and still too large."""
    text = text[:_MOST_DIGITS]
    if re.fullmatch(r"-?[0-9]+", text):  # 16 decimal digits too: a hex root without a letter needs its 0x
        return int(text)
    if re.fullmatch(r"0[xX][0-9a-fA-F]+|[0-9a-fA-F]{16}", text):
        return int(text, 16)
    return None


def id_text(message_id: MessageId | None) -> str | None:
    """A message id as people read it."""
    if isinstance(message_id, bytes):
        return repr(message_id)
    return None if message_id is None else str(message_id)


_LAST_MS = 253_402_300_799_000


def moment(ms: int) -> str:
    """A time as people read it: 2024-05-17 09:30:00Z. The store may hold any number; none is later than year 9999."""
    return datetime.fromtimestamp(max(0, min(ms, _LAST_MS)) / 1000, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def duration(ms: float | None) -> str:
    """A duration as people read it: 350 ms, 12.3 s, 5m 12s, 2h 5m, 3d 4h."""
    if ms is None:
        return "-"
    if ms < 0:
        return f"-{duration(-ms)}"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 99_950:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    for size, big, part, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            return f"{seconds // size}{big} {seconds % size // part}{small}"
    raise AssertionError(ms)


def byte_size(size: float | None) -> str:
    """A size as people read it."""
    if size is None:
        return "-"
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
