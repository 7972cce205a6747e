"""Failed roots as JSON lines: what `drain` writes and `replay` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

from redis_acker.cli.options import ROOT
from redis_acker.cli.output import SCHEMA, id_as_json, id_from_json, root_text
from redis_acker.errors import AckerError, BadInput
from redis_acker.failures import FailedRoot
from redis_acker.message_ids import MAX_ATTEMPT, check_message_ids

KIND = "failure"

START = f'{{"schema": {SCHEMA}, "kind": "{KIND}", "namespace": '
"""How every line begins."""

_TYPES: dict[str, type] = {
    "spout": str,
    "root": str,
    "attempt": int,
    "reason": str,
    "component": str,
    "error": str,
    "fatal": bool,
    "age_ms": int,
    "at_ms": int,
    "shard": int,
    "entry": str,
}


def as_line(namespace: str, failed: FailedRoot) -> str:
    data = {
        "namespace": namespace,
        "spout": failed.spout,
        "message_id": id_as_json(failed.message_id),
        "root": root_text(failed.root),
        "attempt": failed.attempt,
        "reason": failed.reason,
        "component": failed.component,
        "error": failed.error,
        "fatal": failed.fatal,
        "age_ms": failed.age_ms,
        "at_ms": failed.at_ms,
        "shard": failed.shard,
        "entry": failed.entry,
    }
    return json.dumps({"schema": SCHEMA, "kind": KIND, **data})


def parse_line(namespace: str, line: bytes) -> FailedRoot:
    """Raises BadInput, with the reason alone, for a line that drain has not written for this namespace."""
    try:
        data: Any = json.loads(line)
    except ValueError:
        why = "is not JSON" if line.endswith(b"\n") else "is cut off"
        raise BadInput(f"{why}, it ends with {line.rstrip()[-20:].decode(errors='backslashreplace')!r}") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise BadInput("is not a failure as `redis-acker drain` writes it")
    if data.get("schema") != SCHEMA:
        raise BadInput(f"has schema {data.get('schema')!r}, and this version reads {SCHEMA}")
    if data.get("namespace") != namespace:
        raise BadInput(f"is of namespace {data.get('namespace')!r}, not {namespace!r}")
    for name, kind in _TYPES.items():
        if type(data.get(name)) is not kind:
            raise BadInput(f"has no {name} of type {kind.__name__}, but {data.get(name)!r}")
    if not 1 <= data["attempt"] <= MAX_ATTEMPT:
        raise BadInput(f"has attempt {data['attempt']}, which is not from 1 to {MAX_ATTEMPT}")
    return FailedRoot(message_id=_message_id(data), root=_root(data["root"]), **_rest(data))


def _message_id(data: dict[str, Any]) -> Any:
    try:
        message_id = id_from_json(data.get("message_id"))
        if message_id is not None:
            check_message_ids([message_id], 1)
    except (ValueError, AckerError) as error:
        raise BadInput(f"has a message id that is none: {error}") from None
    return message_id


def _root(text: str) -> int:
    import click

    try:
        return ROOT.convert(text, None, None)
    except click.BadParameter as error:
        raise BadInput(f"has a root that is none: {error.message}") from None


def _rest(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in _TYPES if name != "root"}


def read_lines(namespace: str, file: IO[bytes]) -> Iterator[tuple[int, FailedRoot | BadInput]]:
    """The lines of a file with their numbers: what they say, or why they cannot be used. Empty ones are left out."""
    for number, line in enumerate(file, 1):
        if line.isspace():
            continue
        try:
            yield number, parse_line(namespace, line)
        except BadInput as error:
            yield number, error
