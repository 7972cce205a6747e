"""Workers that start a Python which cannot run bolts get one clear sentence before any message is emitted."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from redis_acker.version import VERSION
from spark_integration import OtherVersion, WrongPython
from spark_integration.topologies import spark_jobs
from tests.spark.pythons import DRIVER, LACKING, REMEDY, Start, script
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import Relay, chain


def refused(bench: Bench, says: str) -> None:
    with pytest.raises(WrongPython, match=says), bench.runner(chain([1], Relay())):
        pass
    assert bench.acker.stats().spouts == []


def test_a_python_of_another_version(bench: Bench, start: Start, another_version: Path) -> None:
    start(another_version)

    says = re.escape(f"{DRIVER}start '{another_version}', which is Python 3.99: ") + ".*" + re.escape(REMEDY)
    refused(bench, says)


def test_a_python_without_this_package(bench: Bench, start: Start, bare: Path) -> None:
    start(bare)

    refused(bench, re.escape(f"{DRIVER}start '{bare}', which ") + LACKING)


def test_a_python_that_is_not_there(bench: Bench, start: Start) -> None:
    start("/nowhere/python")

    refused(bench, re.escape(f"{DRIVER}cannot start '/nowhere/python': "))


def test_another_python_that_has_all_a_bolt_needs(bench: Bench, start: Start, tmp_path: Path) -> None:
    start(script(tmp_path / "python", f"exec '{sys.executable}' \"$@\""))

    bench.run(chain([1], Relay()))

    assert bench.completed == [0]


# -- as on a cluster, where only the workers know ------------------------------------------------------------------


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_jobs, "check_python", lambda spark: None)


@pytest.mark.usefixtures("unchecked")
def test_workers_of_another_version_say_so(bench: Bench, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.99")

    runs = f"run Python {sys.version_info[0]}.{sys.version_info[1]}: "
    refused(bench, re.escape(DRIVER + runs) + ".*" + re.escape(REMEDY))


@pytest.mark.usefixtures("unchecked")
def test_workers_without_this_package_say_so(bench: Bench, start: Start, bare: Path) -> None:
    start(bare)

    refused(bench, re.escape(DRIVER) + LACKING)


def test_workers_with_another_version_of_this_package_say_so(bench: Bench, another_package: str) -> None:
    says = re.escape(f"The driver has redis-acker {VERSION}, but a Spark worker has {another_package}: ")

    with pytest.raises(OtherVersion, match=says), bench.runner(chain([1], Relay())):
        pass
    assert bench.acker.stats().spouts == []
