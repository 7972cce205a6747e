"""Real Spark for tests: a local session, and a standalone cluster. Each is started once per run, when first asked for.

With pytest-xdist each worker process has its own session; the tests on the cluster stay together in one of them
(--dist loadgroup).
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import redis_acker
import spark_integration
from tests.spark.cluster import HOSTS, SMALL, StandaloneCluster, require_java
from tests.spark.pythons import Start, bare_python, script

CLUSTER_GROUP = "spark-cluster"


def pytest_configure(config: pytest.Config) -> None:
    # pytest-xdist knows this mark; without it the mark means nothing.
    config.addinivalue_line("markers", "xdist_group(name): tests that share a worker process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(CLUSTER_GROUP))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores, in which a task may fail once."""
    require_java()
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_DIRS", str(directory / "local"))
        patch.setenv("SPARK_LOCAL_IP", HOSTS[0])
        session = _session(directory)
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def arrow_batches_of_any_size(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests share a session: one that has rows come to workers in small batches does so for itself."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def _session(directory: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2,2]").appName("redis-acker tests")
    # Data sets of tests are small, but several tests share the session.
    own = {"spark.driver.memory": "1g", "spark.sql.warehouse.dir": str(directory / "warehouse")}
    for name, value in {**SMALL, **own}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[StandaloneCluster]:
    """A Master and two Workers."""
    cluster = StandaloneCluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def start(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Start:
    """start(python) lets workers start that Python."""
    return lambda python: monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The Python of an environment in which nothing is installed."""
    return bare_python(tmp_path)


@pytest.fixture
def another_version(tmp_path: Path) -> Path:
    """This Python, under a script that changes the version it says it is."""
    return script(tmp_path / "python", f"'{sys.executable}' \"$@\" | sed '1s/.*/3.99/'")


@pytest.fixture
def another_package(tmp_path: Path, start: Start) -> str:
    """Workers have a version of this package in which the classes of what they are sent have other names."""
    for package in (redis_acker, spark_integration):
        [folder] = package.__path__
        shutil.copytree(folder, tmp_path / package.__name__, ignore=shutil.ignore_patterns("__pycache__"))
    for module in (tmp_path / "spark_integration").rglob("*.py"):
        module.write_text(re.sub(r"\b(FusedSink|MakePending|Plan)\b", r"Old\1", module.read_text()))
    (tmp_path / "redis_acker" / "version.py").write_text('VERSION = "0.0.9"\n')
    start(script(tmp_path / "python", f"cd '{tmp_path}' && exec '{sys.executable}' \"$@\""))
    return "0.0.9"
