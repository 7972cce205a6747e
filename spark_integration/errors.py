"""The errors of tracked Spark jobs."""

from __future__ import annotations

import re

from redis_acker.errors import AckerError, BadInput
from spark_integration.steps import WrongOutput
from spark_integration.workers import StoreOutOfReach

_FROM_WORKER = {error.__name__: error for error in (WrongOutput, StoreOutOfReach)}
_RAISED = re.compile(rf"^\S*\b({'|'.join(_FROM_WORKER)}): (.*)$", re.MULTILINE)


class BadFrame(BadInput):
    """Raised when a frame cannot be tracked as it was asked for; nothing has been started."""


class JobFailed(AckerError):
    """Raised when the Spark job of a run failed; what was unfinished has failed with it."""


class TooManyFailures(AckerError):
    """Raised when more messages have failed than the run allows; the job was cancelled."""


def error_of(error: Exception, unfinished: str) -> AckerError:
    """What to raise for an error of Spark. One of ours that was raised in a worker is raised as itself."""
    text = str(error)
    if found := _RAISED.search(text):
        return _FROM_WORKER[found[1]](found[2])
    return JobFailed(f"The Spark job failed, and with it {unfinished}: {_cause_in(text) or type(error).__name__}")


def _cause_in(text: str) -> str:
    """The line that says it: after a Python traceback its last line, else the first one."""
    _, traceback, rest = text.partition("Traceback (most recent call last):")
    lines = (rest if traceback else text).splitlines()
    told = [line for line in lines if line.strip() and not line.startswith((" ", "\t"))]
    return told[0].strip() if told else ""
