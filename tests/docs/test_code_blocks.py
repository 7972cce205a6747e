"""Every code block of README.md and docs/ does what the page says.

python  run; the blocks of a page share one namespace, and REDIS_ACKER_URL names a fresh server
output  what the python block before it prints
sh      make targets must exist; redis-acker is run; benchmarks must know their options
text    not run: a picture, or something that needs another kind of server
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from redis_acker.embedded import EmbeddedServer
from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of

KINDS = {"python", "output", "sh", "text"}

#: Separates what one block prints from what the next one does.
MARK = "\x00"

PYTHON_PAGES = [page for page in PAGES if any(block.kind == "python" for block in blocks(page))]
SHELL_LINES = [
    (name_of(page), line)
    for page in PAGES
    for block in blocks(page)
    if block.kind == "sh"
    for line in block.code.splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    unknown = [(block.line, block.kind) for block in blocks(page) if block.kind not in KINDS]

    assert not unknown


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_of)
def test_the_python_blocks_of_a_page_run_and_print_what_it_says(page: Path, tmp_path: Path) -> None:
    found = [block for block in blocks(page) if block.kind in ("python", "output")]
    script = tmp_path / page.name
    script.write_text(_as_script([block for block in found if block.kind == "python"]), encoding="utf-8")

    with EmbeddedServer() as server:
        ran = subprocess.run(
            [sys.executable, script],
            env={**os.environ, "REDIS_ACKER_URL": server.url},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.split(MARK)[:-1] == _expected(found)


@pytest.mark.parametrize(("page", "line"), SHELL_LINES)
def test_a_shell_line_works(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)

    if words[0] == "make":
        assert set(words[1:]) <= _make_targets()
    elif words[0] == "redis-acker":
        subprocess.run([Path(sys.prefix, "bin", words[0]), *words[1:]], check=True, timeout=60, stdout=subprocess.PIPE)
    else:
        assert words[:3] == [".venv/bin/python", "-m", "benchmarks"], f"do not know how to check {line!r}"
        command = [sys.executable, "-m", "benchmarks", *words[3:], "--help"]
        subprocess.run(command, check=True, timeout=60, cwd=ROOT, stdout=subprocess.PIPE)


def test_the_readme_has_code_that_runs_by_line_20() -> None:
    assert next(block.line for block in blocks(ROOT / "README.md") if block.kind == "python") <= 20


def _as_script(found: list[Block]) -> str:
    """The blocks in one file, each line where it is on the page, so that a traceback names the page's line."""
    lines: list[str] = []
    for block in found:
        lines += [""] * (block.line - 1 - len(lines))
        lines += [*block.code.splitlines(), f"print(end={MARK!r})"]
    return "\n".join(lines)


def _expected(found: list[Block]) -> list[str]:
    """What each python block prints; nothing where no output block follows."""
    expected: list[str] = []
    for block in found:
        if block.kind == "python":
            expected.append("")
        else:
            expected[-1] = block.code
    return expected


def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
