"""The examples do what their READMEs say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rabbitmq import RabbitMq

ROOT = Path(__file__).resolve().parents[2]
URL_IN_README = "amqp://guest:guest@localhost:5672/%2F"


def blocks(example: str, kind: str) -> str:
    text = (ROOT / "examples" / example / "README.md").read_text()
    return "".join(re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def run_readme(example: str, url: str = "", *, timeout_s: float = 60) -> tuple[str, str]:
    """Runs the commands of a README. Returns what they print, and what they log."""
    printed = logged = ""
    for line in blocks(example, "sh").splitlines():
        python, *words = shlex.split(line.replace(URL_IN_README, url))
        assert python == "python"
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert ran.returncode == 0, ran.stderr
        printed += ran.stdout
        logged += ran.stderr
    return printed, logged


def test_the_word_count_prints_what_its_readme_says() -> None:
    assert run_readme("word_count") == (blocks("word_count", "output"), "")


def test_the_orders_of_a_queue_are_booked_as_the_readme_says(rabbitmq: RabbitMq) -> None:
    printed, logged = run_readme("rabbitmq", rabbitmq.url)

    assert printed == blocks("rabbitmq", "output")
    assert logged.count("is dead after 1 attempts") == 10
    assert rabbitmq.count("orders") == 0
    rabbitmq.delete("orders")


def test_the_stream_of_orders_prints_what_its_readme_says() -> None:
    printed, logged = run_readme("streaming", timeout_s=300)

    assert printed == blocks("streaming", "output")
    assert "Message 'order-13' of spout orders is dead after 3 attempts" in logged


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/*.py")), ids=lambda path: str(path.name))
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 80
