"""The log of commands that run as services: one line a fact, for people and programs, without passwords."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import datetime, timezone
from typing import Any

from redis_acker.cli.output import SCHEMA
from redis_acker.views.texts import shown

_PLAIN = re.compile(r"[^\s\"=\\]+")
"""Values that need no quotes."""

_PASSWORD = re.compile(
    r"(?i)(://[^\s/@:]*:)[^\s/]+(?=@)|(\bpassword\b['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s,'\"&]+)"
)
"""In a URL, where it may hold an @, and in a setting, where it may be in quotes. Whoever writes a line leaves them out;
this is for texts of other programs."""

_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def start_logs(*, as_json: bool) -> None:
    """Sends the log of this process to standard error: key=value, or one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else KeyValues())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def without_passwords(text: str) -> str:
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", text)


class _Facts(logging.Formatter):
    """What a record says, in order: time, level, text, and the fields that its caller gave as extra."""

    def facts(self, record: logging.LogRecord) -> dict[str, Any]:
        at = datetime.fromtimestamp(record.created, tz=timezone.utc)
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        fields = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        return {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "text": without_passwords(text),
            **{name: without_passwords(value) if isinstance(value, str) else value for name, value in fields.items()},
        }


class KeyValues(_Facts):
    """time=2024-05-17T09:30:00.000Z level=info text="Rotation works again." """

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={_value(value)}" for name, value in self.facts(record).items())


class JsonLines(_Facts):
    """The same facts as an object, with the version of the schema and its kind."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"schema": SCHEMA, "kind": "log", **self.facts(record)}, default=str)


def _value(value: Any) -> str:
    text = str(value) if not isinstance(value, str) else shown(" ".join(value.split()))
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
