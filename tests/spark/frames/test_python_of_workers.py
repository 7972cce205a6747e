"""Workers whose Python, or whose version of this package, cannot run steps get one clear sentence, and no root was ever
initialised."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from redis_acker import Acker
from redis_acker.version import VERSION
from spark_integration import OtherVersion, TrackedFrame, WrongPython, track, workers
from spark_integration.frames import repeatable
from tests.spark.frames.books import books
from tests.spark.frames.conftest import MakeFrame
from tests.spark.pythons import DRIVER, LACKING, REMEDY, Start, script

SCHEMA = "id long"


@pytest.fixture
def native(spark: SparkSession, acker: Acker) -> TrackedFrame:
    """A tracked frame that needs no Python so far."""
    return track(spark.range(3), acker=acker, spout="numbers", message_id="id")


def copy(row: Row) -> Row:
    return row


def sink(frame: TrackedFrame) -> object:
    return frame.sink(lambda batch: None)


def test_a_python_of_another_version(
    native: TrackedFrame, start: Start, another_version: Path, acker: Acker, numbers: Callable[[int], DataFrame]
) -> None:
    start(another_version)
    says = re.escape(f"{DRIVER}start '{another_version}', which is Python 3.99: ") + ".*" + re.escape(REMEDY)

    with pytest.raises(WrongPython, match=says):
        native.map(copy, SCHEMA)
    with pytest.raises(WrongPython, match=says):
        sink(native)
    with pytest.raises(WrongPython, match=says):
        native.to_df()
    with pytest.raises(WrongPython, match=says):
        track(numbers(3), acker=acker, spout="numbers", message_id="id")
    assert sum(one.initialised for one in acker.stats().spouts) == 0


def test_a_python_without_this_package(native: TrackedFrame, start: Start, bare: Path) -> None:
    start(bare)

    with pytest.raises(WrongPython, match=re.escape(f"{DRIVER}start '{bare}', which ") + LACKING):
        native.map(copy, SCHEMA)


def test_a_python_that_is_not_there(native: TrackedFrame, start: Start) -> None:
    start("/nowhere/python")

    with pytest.raises(WrongPython, match=re.escape(f"{DRIVER}cannot start '/nowhere/python': ")):
        native.map(copy, SCHEMA)


def test_a_job_of_native_steps_needs_the_python_of_its_driver_too(native: TrackedFrame, start: Start) -> None:
    """Workers make its messages pending."""
    start("/nowhere/python")

    with pytest.raises(WrongPython, match="cannot start '/nowhere/python'"):
        native.where("id > 0").write(lambda writer: writer.format("noop").mode("overwrite").save())


def test_another_python_that_has_all_a_step_needs(native: TrackedFrame, start: Start, tmp_path: Path) -> None:
    start(script(tmp_path / "python", f"exec '{sys.executable}' \"$@\""))

    assert native.map(copy, SCHEMA).sink(lambda batch: None).completed == 3


# -- as on a cluster, where only the workers know ------------------------------------------------------------------


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (workers, repeatable):
        monkeypatch.setattr(module, "check_python", lambda spark: None)


@pytest.mark.usefixtures("unchecked")
def test_workers_of_another_version_say_so(
    native: TrackedFrame, spark: SparkSession, acker: Acker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.99")
    runs = f"run Python {sys.version_info[0]}.{sys.version_info[1]}: "

    with pytest.raises(WrongPython, match=re.escape(DRIVER + runs) + ".*" + re.escape(REMEDY)):
        sink(native)
    assert books(acker) == (0, 0, 0, 0)


@pytest.mark.usefixtures("unchecked")
def test_workers_without_this_package_say_so(native: TrackedFrame, start: Start, bare: Path, acker: Acker) -> None:
    start(bare)

    with pytest.raises(WrongPython, match=re.escape(DRIVER) + LACKING):
        sink(native)
    assert books(acker) == (0, 0, 0, 0)


@pytest.mark.usefixtures("unchecked")
def test_workers_that_compute_the_frame_itself_say_so(
    tracked: MakeFrame, numbers: Callable[[int], DataFrame], start: Start, acker: Acker
) -> None:
    start("/nowhere/python")
    says = re.escape(f"{DRIVER}cannot start '/nowhere/python': ")

    with pytest.raises(WrongPython, match=says):
        track(numbers(3), acker=acker, spout="numbers", message_id="id")
    with pytest.raises(WrongPython, match=says):
        sink(tracked(3))
    assert books(acker) == (0, 0, 0, 0)


@pytest.mark.parametrize("shuffles", [False, True])
def test_workers_with_another_version_of_this_package_say_so(
    native: TrackedFrame, acker: Acker, another_package: str, shuffles: bool
) -> None:
    frame = native.repartition(2) if shuffles else native

    with pytest.raises(OtherVersion) as error:
        sink(frame.map(copy, SCHEMA))
    says = f"The driver has redis-acker {VERSION}, but a Spark worker has {another_package}: ship the driver's version "
    assert str(error.value).startswith(says)
    assert books(acker) == (0, 0, 0, 0)
