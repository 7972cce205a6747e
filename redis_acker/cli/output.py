"""What commands print: JSON for programs, plain text in a pipe, tables and colour on a terminal.

Texts from the store (message ids, errors) are never interpreted as markup or control sequences.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import click

from redis_acker.views.texts import Cell, shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

SCHEMA = 1
"""The version of all JSON output. It changes when a field is renamed, removed or means something else."""

_MEASURED_ROWS = 100
"""Rows held back to find out how wide the columns of a table are; the rest is streamed."""

_GAP = "  "

ARE, WERE, GO = ("is", "are"), ("was", "were"), ("goes", "go")
"""Verbs for counted()."""

_NUMBER = re.compile(r"-|-?[0-9][0-9,]*(\.[0-9]+)?( ?[a-zA-Z]{1,2})?( [0-9]+[a-z])?")

Row: TypeAlias = Sequence[Cell]


class Progress(Protocol):
    """Is told how far a long piece of work has come."""

    def advance(self, amount: int = 1) -> None: ...


class Output:
    """Prints the results of a command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def on_terminal(self) -> bool:
        """Whether a person is looking: only people get colour, boxes and live updates."""
        return not self.as_json and sys.stdout.isatty()

    # -- for programs --------------------------------------------------------------------------------------------

    def document(self, kind: str, data: object) -> None:
        """One JSON object on one line: the schema version, its kind, and the fields of a mapping or dataclass.

        For anything but a listing. Callers print it if as_json is set, and something for people otherwise.
        """
        sys.stdout.write(_to_json(kind, data) + "\n")

    def lines(self, kind: str, rows: Iterable[object]) -> int:
        """JSON lines, one object per row, as they come and in constant memory. Returns how many."""
        count = 0
        for row in rows:
            sys.stdout.write(_to_json(kind, row) + "\n")
            count += 1
        return count

    # -- for people ----------------------------------------------------------------------------------------------

    def table(self, columns: Sequence[str], rows: Iterable[Row]) -> int:
        """Rows under a heading, as they come and in constant memory. Returns how many.

        Numbers are aligned to the right. The first rows set the widths; a longer text further down is not cut.
        """
        rest = iter(rows)
        first = [[shown(cell) for cell in row] for row in islice(rest, _MEASURED_ROWS)]
        following = list(islice(rest, 1))
        if self.on_terminal and not following:
            console().print(drawn(columns, first))
            return len(first)
        widths = [max(map(_width, column)) for column in zip(columns, *first, strict=True)]
        right = _flush_right(columns, first)
        count = 0
        for row in chain([columns], first, ([shown(cell) for cell in row] for row in chain(following, rest))):
            cells = [_pad(text, width, flush) for text, width, flush in zip(row, widths, right, strict=True)]
            sys.stdout.write(_GAP.join(cells).rstrip() + "\n")
            count += 1
        return count - 1

    def fields(self, pairs: Iterable[tuple[str, Cell]]) -> None:
        """Names and values, one pair per line."""
        known = [(name, shown(value)) for name, value in pairs]
        width = max((_width(name) for name, _ in known), default=0)
        for name, value in known:
            label = _pad(name, width, False)
            sys.stdout.write(f"{self.style(label, dim=True)}{_GAP}{value}".rstrip() + "\n")

    def line(self, text: str = "", **style: Any) -> None:
        """One line. The style is click's, fg="red" or bold=True, and applies on a terminal only."""
        sys.stdout.write(self.style(shown(text), **style) + "\n")

    def item(self, mark: str, text: str, *, indent: int) -> None:
        """A mark, which may be styled, and a text that a terminal wraps beside it."""
        lines = [shown(text)]
        if self.on_terminal:
            columns = shutil.get_terminal_size().columns
            lines = textwrap.wrap(lines[0], max(20, columns - indent), break_on_hyphens=False) or [""]
        sys.stdout.write(mark + f"\n{' ' * indent}".join(lines) + "\n")

    def style(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if style and self.on_terminal and not _no_colour() else text

    def note(self, text: str) -> None:
        """A remark for people, on standard error, so that it stays out of pipes."""
        if self.as_json:
            return
        sys.stdout.flush()
        click.echo(shown(text), err=True)

    @contextmanager
    def progress(self, total: int | None, text: str = "") -> Iterator[Progress]:
        """A progress bar on standard error while the block runs, if that is a terminal."""
        if not sys.stderr.isatty():
            yield _Silent()
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        with Bar(*columns, TimeElapsedColumn(), console=console(stderr=True), transient=True) as bar:
            yield _Shown(bar, bar.add_task(shown(text), total=total))


class _Silent:
    def advance(self, amount: int = 1) -> None:
        pass


class _Shown:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task = bar, task

    def advance(self, amount: int = 1) -> None:
        self._bar.advance(self._task, amount)


# -- words ------------------------------------------------------------------------------------------------------


def counted(count: int, noun: str, verbs: tuple[str, str] = ("", "")) -> str:
    """counted(1, "root", ARE) is "1 root is", counted(5, "root", ARE) "5 roots are"."""
    verb = verbs[count != 1]
    return f"{count:,} {noun}{'s' if count != 1 else ''}{verb and ' '}{verb}"


# -- how it is printed -----------------------------------------------------------------------------------------------


def _to_json(kind: str, data: object) -> str:
    if is_dataclass(data) and not isinstance(data, type):
        data = asdict(data)
    if not isinstance(data, Mapping):
        raise TypeError(f"{kind}: the fields of a JSON object come from a mapping or a dataclass, not {data!r}")
    # ASCII only, the default: no control characters, nothing that a terminal's encoding cannot hold.
    return json.dumps({"schema": SCHEMA, "kind": kind, **data})


def _flush_right(columns: Sequence[str], rows: list[list[str]]) -> list[bool]:
    """Which columns hold only numbers, with or without a unit."""
    if not rows:
        return [False] * len(columns)
    return [all(_NUMBER.fullmatch(text) for text in column) for column in zip(*rows, strict=True)]


def _width(text: str) -> int:
    """Width on a terminal: wide characters take two columns, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def _pad(text: str, width: int, right: bool) -> str:
    if text.isascii():
        return text.rjust(width) if right else text.ljust(width)
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _no_colour() -> bool:
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)


def drawn(columns: Sequence[str], rows: Iterable[Row]) -> RichTable:
    """A table as a terminal shows it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [[shown(cell) for cell in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name, flush in zip(columns, _flush_right(columns, cells), strict=True):
        table.add_column(Text(name), justify="right" if flush else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table
