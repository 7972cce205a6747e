"""Simulated time needs nothing but the extra `testing`: no server, no Spark, none of the other extras."""

from __future__ import annotations

import re
import subprocess
import sysconfig
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def needed(requirement: Requirement, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """What pip would install for a requirement, by name, as it is installed here."""
    one = distribution(requirement.name)
    found[requirement.name] = one
    for text in one.requires or ():
        further = Requirement(text)
        extras = requirement.extras or {""}
        wanted = further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in extras)
        if wanted and further.name not in found:
            needed(further, found)
    return found


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A fresh Python in which redis-acker[testing] is all that is installed."""
    home = tmp_path / "venv"
    venv.create(home, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))
    found = needed(Requirement("redis-acker[testing]"), {})
    del found["redis-acker"]
    for one in found.values():
        for top in {file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(one.locate_file(top))))
    (site / "redis_acker").symlink_to(ROOT / "redis_acker")
    return home / "bin" / "python"


def test_the_page_on_simulated_time_runs_with_the_extra_alone(python: Path, tmp_path: Path) -> None:
    page, _, _ = (ROOT / "docs/testing.md").read_text().partition("## As a fixture")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    program = "\n".join(
        ["import math", *blocks, "import sys", "print(sorted({'pyspark', 'pyarrow'} & set(sys.modules)))"]
    )
    nothing = {"PATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([python, "-c", program], cwd=tmp_path, env=nothing, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines() == ["acked: 1, after 7 s", "acked: 100, failed: 0, after 2000 s", "[]"]


def test_without_the_extra_the_error_says_what_to_install(python: Path, tmp_path: Path) -> None:
    program = "import sys; sys.modules['fakeredis'] = None; from redis_acker.testing import fake_redis; fake_redis()"
    ran = subprocess.run([python, "-c", program], cwd=tmp_path, env={}, capture_output=True, text=True)
    assert "pip install 'redis-acker[testing]'" in ran.stderr.splitlines()[-1]
