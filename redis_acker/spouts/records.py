"""Turns the records of a source into messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis_acker.components.spout import Message
from redis_acker.errors import BadInput, text_of
from redis_acker.store.message_ids import MessageId

WHOLE = ("value",)
"""The one field of a source that hands out whole records."""


def read_record(
    message_id: MessageId, raw: Any, parse: Callable[[Any], Any], fields: Sequence[str] | None, where: str
) -> Message:
    """A message with the whole record as its value, or with one value for each of the named fields.

    A record that cannot be read gives a message with an error, which becomes a dead letter: it stops nothing and is not
    lost.
    """
    try:
        record = parse(raw)
        values = [record] if fields is None else _pick(record, fields)
    except Exception as error:  # parse may be the user's
        why = text_of(error, with_type=not isinstance(error, BadInput))
        return Message([_as_text(raw)], message_id, error=f"{where} cannot be read: {why}")
    return Message(values, message_id)


def _pick(record: Any, fields: Sequence[str]) -> list[Any]:
    if not isinstance(record, Mapping):
        raise BadInput(
            f"fields {list(fields)} were asked for, but it is a {type(record).__name__}, which has no names."
        )
    missing = [name for name in fields if name not in record]
    if missing:
        raise BadInput(f"it has no field {', '.join(map(repr, missing))}, only {sorted(map(str, record))}.")
    return [record[name] for name in fields]


def _as_text(raw: Any) -> str:
    return raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else repr(raw)
