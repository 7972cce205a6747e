"""The errors of tracked Spark jobs, and which of them an error of Spark's becomes.

May import: redis_acker.
"""

from __future__ import annotations

import re
import sys

from redis_acker.errors import AckerError, BadInput, ServerUnavailable, StoreLost

NEEDED_BY_WORKERS = ("spark_integration", "redis_acker", "redis", "numpy", "pyarrow")
"""What a Python worker has to import to run a step."""


class BadFrame(BadInput):
    """Raised when a frame cannot be tracked in the way it was asked for; nothing has started."""


class WrongPython(AckerError):
    """Raised when Spark's workers start a Python that cannot run steps: another version than the driver's, or one
    without this package."""


class StoreOutOfReach(AckerError):
    """Raised when the driver reaches the store but a Python worker does not."""


class WrongOutput(AckerError):
    """Raised when no row that a step returns for a batch fits the schema the step was declared with."""


class SinkHangs(AckerError):
    """Raised when one call of a sink takes longer than the job allows."""


class BoltHangs(AckerError):
    """Raised in a worker when a bolt does not come back from a tuple that has timed out; its task fails."""


class OtherRows(AckerError):
    """Raised when a partition has different rows than at its first reading, so that it is not known what is done."""


class CutShort(AckerError):
    """Raised in a worker when the input of a task ends before all rows of its partition were read."""


class OtherCheckpoint(AckerError):
    """Raised when a streaming query is started with a checkpoint, spout or column of message ids that do not belong
    together."""


class SourceUnavailable(ServerUnavailable):
    """Raised when the source of a stream cannot be told that messages are finished; the query tries again."""


class RunReplaced(AckerError):
    """Raised in a worker when its run is over, or another run has taken its place."""


class OtherVersion(AckerError):
    """Raised when a Spark worker has another version of this package than the driver."""


class JobFailed(AckerError):
    """Raised when the Spark job of a run failed; what was unfinished has failed with it."""


class TooManyFailures(AckerError):
    """Raised when more messages have failed than the run allows; the job was cancelled."""


class BadCheckpoint(BadInput):
    """Raised when a streaming query cannot go on from its checkpoint: it belongs to other streams, or to a newer
    version."""


class EntriesMissing(AckerError):
    """Raised when entries of a Redis Stream are gone that a query has not read, or has to read again."""


_FROM_WORKER = {
    error.__name__: error
    for error in (BadFrame, WrongOutput, StoreOutOfReach, SinkHangs, OtherRows, OtherVersion, RunReplaced, StoreLost)
}
_RAISED = re.compile(rf"^\S*\b({'|'.join(_FROM_WORKER)}): (.*)$", re.MULTILINE)

_OTHER_VERSION = re.compile(r"Python in worker has different version: \(?(\d+)(?:, |\.)(\d+)")
_NOT_INSTALLED = re.compile(rf"ModuleNotFoundError: No module named '({'|'.join(NEEDED_BY_WORKERS)})\b")
_CALLED = re.compile(r"\AAn error occurred while calling \S+\n: (?=.)")
_NOT_RUNNABLE = re.compile(r'Cannot run program "(.*?)"')


def error_of(error: Exception, unfinished: str) -> AckerError:
    """The error to raise for one of Spark's. One of ours that was raised in a worker is raised as itself."""
    text = str(error)
    if found := _RAISED.search(text):
        return _FROM_WORKER[found[1]](found[2])
    if wrong := wrong_python_in(error):
        return wrong
    return JobFailed(f"The Spark job failed, and with it {unfinished}: {_cause_in(text) or type(error).__name__}")


def wrong_python_in(error: BaseException) -> WrongPython | None:
    """What to raise instead, if an error of Spark's says that its workers have the wrong Python."""
    text = str(error)
    if found := _OTHER_VERSION.search(text):
        return wrong_python(f"run Python {found[1]}.{found[2]}")
    if found := _NOT_INSTALLED.search(text):
        return wrong_python(f"cannot import {found[1]!r}")
    if found := _NOT_RUNNABLE.search(text):
        return wrong_python(f"cannot start {found[1]!r}")
    return None


def wrong_python(what_workers_do: str) -> WrongPython:
    """One sentence: what the driver runs, what the workers do instead, and the remedy."""
    version = "{}.{}".format(*sys.version_info)
    return WrongPython(
        f"The driver runs Python {version} ({sys.executable}), but Spark's workers {what_workers_do}: activate the "
        f"driver's environment or set PYSPARK_PYTHON={sys.executable} before the session is created, and on a cluster "
        "ship that environment to the workers."
    )


def _cause_in(text: str) -> str:
    """The line that matters: the last one of a Python traceback, or else the first one; of an error of Java that Spark
    passes on as it is, the one after the name of the call."""
    _, traceback, rest = text.partition("Traceback (most recent call last):")
    lines = (rest if traceback else _CALLED.sub("", text)).splitlines()
    told = [line for line in lines if line.strip() and not line.startswith((" ", "\t"))]
    return told[0].strip() if told else ""
