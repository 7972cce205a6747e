"""Pythons that workers may start, and what is said of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Start = Callable[[str | Path], None]

DRIVER = f"The driver runs Python {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable}), but Spark's workers "
REMEDY = f"set PYSPARK_PYTHON={sys.executable} before the session is created, and on a cluster ship that environment"
LACKING = r"cannot import '(spark_integration|redis_acker|redis|numpy|pyarrow)': "


def bare_python(directory: Path) -> Path:
    """The Python of an environment in which nothing is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory / "bare"], check=True)
    return directory / "bare" / "bin" / "python"


def script(path: Path, command: str) -> Path:
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return path
