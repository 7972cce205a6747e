"""The code blocks of the pages that people read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block. `kind` is the word behind the fence."""

    kind: str
    line: int
    """Of its first line of code, counted from 1."""
    code: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], text[: found.start(2)].count("\n") + 1, found[2]) for found in _FENCE.finditer(text)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
