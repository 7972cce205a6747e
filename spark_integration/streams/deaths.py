"""Deaths of workers: which failures of a job are such, and which task it was."""

from __future__ import annotations

import re

from spark_integration.errors import JobFailed, SinkHangs

_DIED = re.compile(r"Python worker exited unexpectedly[^.\n]*|ExecutorLostFailure[^\n]*")
_TASK = re.compile(r"Task (\d+) in stage \S+ failed")


def death_in(error: BaseException) -> str:
    """What a job died of, if a row may have done that: it took its worker down, or its sink does not come back from it.
    Empty if the job failed otherwise."""
    if isinstance(error, SinkHangs):
        return str(error)
    found = _DIED.search(_text_of(error)) if isinstance(error, JobFailed) else None
    return found[0] if found else ""


def alone_with(death: str) -> str:
    """Why a message has failed whose job had no other, and died."""
    return f"its worker died of it, alone with it in a job: {death}"


def partition_in(error: BaseException) -> int | None:
    """The partition whose task failed, if Spark says so."""
    found = _TASK.search(_text_of(error))
    return int(found[1]) if found else None


def _text_of(error: BaseException) -> str:
    return str(error.__cause__ or error)
