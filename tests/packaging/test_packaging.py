"""The scripts are found wherever the package is: in a wheel, in a zip, in the tree, in a Spark executor."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from redis_acker.store.scripts import script
from redis_acker.testing import fake
from tests.binaries import missing
from tests.lua.headers import libraries, scripts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

LOOK = """
import json, sys
import redis_acker
from redis_acker import Acker, new_edges
from redis_acker.store.scripts import lua_folder, script

url, namespace, names = sys.argv[1], sys.argv[2], sys.argv[3].split()
with Acker(url, namespace=namespace) as acker:
    roots, edges = acker.allocate("orders", 20), new_edges(20)
    acker.init(roots, edges)
    completed = acker.ack(roots, edges).completed
shas = {name: script(name).sha for name in names}
print(json.dumps({"file": redis_acker.__file__, "lua": str(lua_folder()), "completed": completed, "shas": shas}))
"""

SPARK = """
import json, sys
from pyspark import SparkContext

archive, url, namespace = sys.argv[1:]

def ack(pairs):
    import os
    import redis_acker
    from redis_acker import Acker
    from redis_acker.store.scripts import lua_folder
    roots, edges = zip(*pairs)
    with Acker(url, namespace=namespace, create=False) as acker:
        yield os.getpid(), acker.ack(roots, edges).completed, redis_acker.__file__, str(lua_folder())

context = SparkContext("local[2]", "packaging")
context.addPyFile(archive)
from redis_acker import Acker, new_edges
with Acker(url, namespace=namespace) as acker:
    roots, edges = acker.allocate("orders", 2000), new_edges(2000)
    acker.init(roots, edges)
    pairs = list(zip(roots.tolist(), edges.tolist()))
    workers = context.parallelize(pairs, 4).mapPartitions(ack).collect()
    pending = acker.pending_count()
context.stop()
print(json.dumps({"workers": workers, "pending": pending}))
"""

SPARK_ENVIRONMENT = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    # One small job: to compile it well takes longer than to run it.
    "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false "
    "--conf spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 pyspark-shell",
}


def run(python: Path, program: str, *args: object, path: Path | None = None, where: Path) -> Any:
    """What a program prints last, run away from the tree."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHONPATH": str(path)} if path else {}
    environment |= {"PYSPARK_PYTHON": str(python), **SPARK_ENVIRONMENT}
    ran = subprocess.run(
        [python, "-c", program, *map(str, args)], cwd=where, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    isolation = ["--no-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "build", "--wheel", *isolation, "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    [found] = out.glob("*.whl")
    return found


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A fresh Python that has what the package needs, and not the package."""
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    (site_packages(home) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "python"


def site_packages(home: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))


def assert_works(found: dict[str, Any], package: Path, lua: Path) -> None:
    assert found["file"] == str(package / "__init__.py")
    assert found["lua"].rstrip("/") == str(lua)
    assert found["completed"] == 20
    assert found["shas"] == {name: script(name).sha for name in scripts()}


def test_a_wheel_holds_the_package_and_every_script(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for folder, texts in (("lua", scripts()), ("lua/lib", libraries())):
            for name, text in texts.items():
                assert archive.read(f"redis_acker/{folder}/{name}.lua").decode() == text
        for name in ("bit", "prelude", "simulated", "struct"):
            assert archive.read(f"redis_acker/testing/lua/{name}.lua").decode() == fake.lua(name)
    assert "redis_acker/py.typed" in names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} <= {"redis_acker", "spark_integration"}


def test_a_wheel_finds_its_scripts(wheel: Path, python: Path, url: str, namespace: str, tmp_path: Path) -> None:
    packages = site_packages(python.parent.parent)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(packages), str(wheel)], check=True)
    found = run(python, LOOK, url, namespace, " ".join(scripts()), where=tmp_path)
    assert_works(found, packages / "redis_acker", packages / "redis_acker" / "lua")


def test_a_zip_finds_its_scripts(wheel: Path, python: Path, url: str, namespace: str, tmp_path: Path) -> None:
    archive = tmp_path / "redis_acker.zip"
    shutil.copy(wheel, archive)
    found = run(python, LOOK, url, namespace, " ".join(scripts()), path=archive, where=tmp_path)
    assert_works(found, archive / "redis_acker", archive / "redis_acker" / "lua")


def test_an_editable_install_finds_the_scripts_of_the_tree(
    python: Path, url: str, namespace: str, tmp_path: Path
) -> None:
    """Which is a path to the tree: lua/ is beside the package there, not inside."""
    tree = tmp_path / "tree"
    for part in ("redis_acker", "lua"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    (site_packages(python.parent.parent) / "_redis_acker.pth").write_text(f"{tree}\n")
    found = run(python, LOOK, url, namespace, " ".join(scripts()), where=tmp_path)
    assert_works(found, tree / "redis_acker", tree / "lua")


def test_a_spark_executor_acks_with_a_zip_that_it_was_sent(
    wheel: Path, python: Path, url: str, namespace: str, tmp_path: Path
) -> None:
    if shutil.which("java", path=os.environ.get("JAVA_HOME", "") + "/bin") is None and shutil.which("java") is None:
        missing("java")
    archive = tmp_path / "redis_acker.zip"
    shutil.copy(wheel, archive)
    found = run(python, SPARK, archive, url, namespace, where=tmp_path)
    assert found["pending"] == 0
    assert sum(done for _, done, _, _ in found["workers"]) == 2000
    assert len(found["workers"]) == 4
    for pid, _, package, lua in found["workers"]:
        assert pid != os.getpid()
        assert "redis_acker.zip/redis_acker/__init__.py" in package
        assert "redis_acker.zip/redis_acker/lua" in lua
