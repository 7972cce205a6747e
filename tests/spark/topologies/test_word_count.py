"""The word count is the same topology on both runners, and counts the same."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from redis_acker.server.embedded import EmbeddedServer
from tests.spark.topologies.conftest import Bench
from tests.spark.topologies.parts import run_locally

EXAMPLE = Path(__file__).parents[3] / "examples" / "word_count"


def counts(url: str) -> dict[str, int]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        keys = list(client.scan_iter("places:*"))
        return {key.partition(":")[2]: int(client.scard(key)) for key in keys}


def test_both_runners_count_the_same_words(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    example = runpy.run_path(str(EXAMPLE / "word_count.py"), run_name="word_count")
    for name in ("Split", "Count"):
        monkeypatch.setattr(example[name], "__module__", "__main__")  # as in a script: executors cannot import it
    with EmbeddedServer() as there, EmbeddedServer() as here:
        bench.run(example["word_count"](there.url))
        assert bench.books() == (300, 0, 0, 0)
        run_locally(example["word_count"](here.url), bench.acker)

        assert counts(there.url) == counts(here.url)
        assert counts(here.url)["the"] == 500


@pytest.mark.full
def test_the_example_on_spark_prints_what_its_readme_says() -> None:
    readme = (EXAMPLE / "README.md").read_text()
    [command], [output] = (re.findall(rf"^```{kind}\n(.*?)^```$", readme, re.M | re.S) for kind in ("shell", "output"))
    python, *words = shlex.split(command)
    assert python == "python"
    root = EXAMPLE.parents[1]
    env = {**os.environ, "PYTHONPATH": str(root), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run([sys.executable, *words], cwd=root, env=env, capture_output=True, text=True, timeout=300)

    assert (ran.returncode, ran.stdout) == (0, output), ran.stderr
