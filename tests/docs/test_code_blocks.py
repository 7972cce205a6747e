"""Every code block of README.md and docs/ does what the page says.

python  run; the blocks of a page share one namespace, and REDIS_ACKER_URL names a fresh server
output  what the block before it prints
sh      with redis-acker: run, after the python blocks of the page, on the same server and in the same directory;
        others: make targets must exist, benchmarks must know their options
text    not run: a picture, or something that needs another kind of server
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from redis_acker.server.embedded import EmbeddedServer
from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of

KINDS = {"python", "output", "sh", "text"}

#: Separates what one block prints from what the next one does.
MARK = "\x00"

PYTHON_PAGES = [page for page in PAGES if any(block.kind == "python" for block in blocks(page))]


#: Starting Spark takes seconds, and many seconds on a busy machine.
TIMEOUT_S = 60
SPARK_TIMEOUT_S = 300


def uses_spark(page: Path) -> bool:
    return any("pyspark" in block.code for block in blocks(page))


def is_run(block: Block) -> bool:
    """Whether it is a block of commands that are run."""
    return block.kind == "sh" and re.search(r"\bredis-acker\b", block.code) is not None


SHELL_PAGES = [page for page in PAGES if any(map(is_run, blocks(page)))]
SHELL_LINES = [
    (name_of(page), line)
    for page in PAGES
    for block in blocks(page)
    if block.kind == "sh" and not is_run(block)
    for line in block.code.splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    unknown = [(block.line, block.kind) for block in blocks(page) if block.kind not in KINDS]

    assert not unknown


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_of)
def test_the_python_blocks_of_a_page_run_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        ran = _run_python(page, tmp_path, server)

    assert ran.returncode == 0, ran.stderr
    assert uses_spark(page) or ran.stderr == ""  # Spark logs how it starts
    assert ran.stdout.split(MARK)[:-1] == list(_expected(page, lambda block: block.kind == "python").values())


@pytest.mark.parametrize("page", SHELL_PAGES, ids=name_of)
def test_the_commands_of_a_page_run_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        if page in PYTHON_PAGES:
            assert _run_python(page, tmp_path, server).returncode == 0
        for line, output in _expected(page, is_run).items():
            [block] = [one for one in blocks(page) if one.line == line]
            ran = subprocess.run(
                ["bash", "-eu", "-c", block.code],
                env={
                    **os.environ,
                    "REDIS_ACKER_URL": server.url,
                    "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
                },
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert ran.returncode == 0, f"{name_of(page)}:{line}: {ran.stderr}"
            assert not output or ran.stdout == output


@pytest.mark.parametrize(("page", "line"), SHELL_LINES)
def test_a_shell_line_works(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)

    if words[0] == "make":
        assert set(words[1:]) <= _make_targets()
    else:
        assert words[:3] == [".venv/bin/python", "-m", "benchmarks"], f"do not know how to check {line!r}"
        command = [sys.executable, "-m", "benchmarks", *words[3:], "--help"]
        subprocess.run(command, check=True, timeout=60, cwd=ROOT, stdout=subprocess.PIPE)


def test_the_readme_has_code_that_runs_by_line_20() -> None:
    assert next(block.line for block in blocks(ROOT / "README.md") if block.kind == "python") <= 20


def _run_python(page: Path, directory: Path, server: EmbeddedServer) -> subprocess.CompletedProcess[str]:
    script = directory / page.name
    script.write_text(_as_script([block for block in blocks(page) if block.kind == "python"]), encoding="utf-8")
    return subprocess.run(
        [sys.executable, script],
        env={
            **os.environ,
            "REDIS_ACKER_URL": server.url,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=SPARK_TIMEOUT_S if uses_spark(page) else TIMEOUT_S,
    )


def _as_script(found: list[Block]) -> str:
    """The blocks in one file, each line where it is on the page, so that a traceback names the page's line."""
    lines: list[str] = []
    for block in found:
        lines += [""] * (block.line - 1 - len(lines))
        lines += [*block.code.splitlines(), f"print(end={MARK!r})"]
    return "\n".join(lines)


def _expected(page: Path, chosen: Callable[[Block], bool]) -> dict[int, str]:
    """What each chosen block prints, by its line; nothing where no output block follows."""
    found = blocks(page)
    return {
        block.line: after.code if after is not None and after.kind == "output" else ""
        for block, after in zip(found, [*found[1:], None], strict=True)
        if chosen(block)
    }


def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
