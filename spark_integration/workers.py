"""Spark's Python workers: which Python they run, how a step gets there, and how they reach the store.

May import: redis_acker, errors.
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from redis_acker import Acker
from redis_acker.errors import AckerError
from redis_acker.version import VERSION
from spark_integration.errors import NEEDED_BY_WORKERS, OtherVersion, StoreOutOfReach, wrong_python

_PROBE = """
import importlib.util, sys
print(*sys.version_info[:2], sep=".")
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
"""
_PROBE_TIMEOUT_S = 30

_CORES = 4
_SPLIT_FOR = "spark.sql.leafNodeDefaultParallelism"

_open_ackers: dict[tuple[int, bytes], Acker] = {}
"""By process and store: a forked worker opens its own, and all tasks of a worker share it."""


def map_in_workers(frame: DataFrame, step: Callable[[Any], Any], schema: str | StructType, *, name: str) -> DataFrame:
    """Runs a step over the frame's Arrow batches. Spark shows it under its name."""
    check_python(frame.sparkSession)
    mapped: DataFrame = frame.mapInArrow(for_workers(step, name=name), schema)
    return mapped


def for_workers(step: Callable[[Any], Any], *, name: str) -> Callable[[Any], Any]:
    """A function for mapInArrow that calls a step in workers that have the version of the driver. Others raise
    OtherVersion."""
    sent = _SameVersion(), step  # in this order: a worker with another version may not know the classes of the step

    def call(batches: Any) -> Any:
        return sent[1](batches)

    call.__name__ = name
    return call


class _SameVersion:
    """Raises OtherVersion when it is unpickled, unless the worker has the version of the driver."""

    def __reduce__(self) -> tuple[Any, ...]:
        return check_version, (VERSION,)


def check_version(of_driver: str) -> None:
    if of_driver != VERSION:
        raise OtherVersion(
            f"The driver has redis-acker {of_driver}, but a Spark worker has {VERSION}: ship the driver's version to "
            "the workers, with --py-files, in an archive, or in the image of the executors."
        )


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a client of a Spark Connect server."""
    return not hasattr(spark, "_sc")


def cores_for(frame: DataFrame) -> int:
    """How many cores Spark has at this moment; over Spark Connect, where nobody says, a guess."""
    spark = frame.sparkSession
    return _CORES if is_connect(spark) else int(spark.sparkContext.defaultParallelism)


@contextmanager
def split_for(frame: DataFrame, cores: int) -> Iterator[None]:
    """Inside it, files and other inputs are split into partitions as for so many cores, however many there are by now:
    executors come and go. Not over Spark Connect."""
    spark = frame.sparkSession
    if is_connect(spark) or spark.conf.get(_SPLIT_FOR, None) is not None:
        yield
        return
    spark.conf.set(_SPLIT_FOR, cores)
    try:
        yield
    finally:
        spark.conf.unset(_SPLIT_FOR)


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """Gives the jobs that this thread starts from now on a name, by which any thread can cancel them. The tags of a
    session are not used where there is a context: there only the thread that has added one can cancel by it."""
    spark.addTag(tag) if is_connect(spark) else spark.sparkContext.addJobTag(tag)


def untag_jobs(spark: SparkSession, tag: str) -> None:
    spark.removeTag(tag) if is_connect(spark) else spark.sparkContext.removeJobTag(tag)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    spark.interruptTag(tag) if is_connect(spark) else spark.sparkContext.cancelJobsWithTag(tag)


def check_python(spark: SparkSession) -> None:
    """Raises WrongPython if it can be seen from here that workers cannot run our steps: when they run on this machine.
    On a cluster they say so themselves, and error_of() recognises it."""
    if is_connect(spark) or not str(spark.sparkContext.master).startswith("local"):
        return
    context = spark.sparkContext
    started = context.pythonExec
    if shutil.which(started) == sys.executable:
        return
    found_at = os.pathsep.join(filter(None, (context.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH"))))
    found = _probe(started, found_at)
    if found is None:
        return
    version, missing = found
    if version != context.pythonVer:
        raise wrong_python(f"start {started!r}, which is Python {version}" if version else f"cannot start {started!r}")
    if missing and not context._python_includes:  # what is shipped to workers is known to them alone
        raise wrong_python(f"start {started!r}, which cannot import {missing[0]!r}")


@cache
def _probe(python: str, python_path: str) -> tuple[str, list[str]] | None:
    """The version of a Python, empty if it cannot be started, and what it lacks. None if it does not say."""
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE, *NEEDED_BY_WORKERS],
            env={**os.environ, "PYTHONPATH": python_path},
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
        version, missing = answer.stdout.splitlines()
    except OSError:
        return "", []
    except (subprocess.SubprocessError, ValueError):
        return None
    return version, missing.split()


@dataclass(frozen=True)
class StoreAddress:
    """How a worker reaches the store. It travels only inside closures: its repr, and so every plan, shows no
    password."""

    _pickled: bytes = field(repr=False)
    driver_host: str

    @classmethod
    def of(cls, acker: Acker) -> StoreAddress:
        return cls(pickle.dumps(acker), socket.gethostname())

    def acker(self) -> Acker:
        """The Acker of this worker process."""
        place = os.getpid(), self._pickled
        if place not in _open_ackers:
            try:
                _open_ackers[place] = pickle.loads(self._pickled)
            except AckerError as error:
                raise StoreOutOfReach(
                    f"The Spark worker on host {socket.gethostname()!r} cannot use the store, though the driver on "
                    f"host {self.driver_host!r} can: {error}"
                ) from error
        return _open_ackers[place]
