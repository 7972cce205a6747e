"""An error that cannot be printed, and a log that insists on printing it."""

from __future__ import annotations

import logging


class Unprintable(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class StrictHandler(logging.Handler):
    """Raises what its formatter raises, as pytest's does. It asks errors for their text, as PySpark's does."""

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()
        if record.exc_info:
            str(record.exc_info[1])
