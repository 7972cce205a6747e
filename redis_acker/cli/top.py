"""`redis-acker top`: what stats shows, live."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from redis_acker.cli.options import DURATION, Store, store_options
from redis_acker.cli.output import console, drawn
from redis_acker.cli.stats import Frame, as_json, frame, show
from redis_acker.views.texts import shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redis_acker.views.overview import Overview, Rates

MOST_BLOCKS = 2_000
"""Blocks of a shard to search for the oldest root at every refresh, which must not cost the server much."""


@click.command()
@click.option(
    "--interval", type=DURATION, default="2s", metavar="TIME", show_default=True, help="Time between refreshes."
)
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@store_options
def top(store: Store, interval: int, once: bool) -> None:
    """Show what stats shows, live.

    Refreshes the terminal until you press q or Ctrl-C. In a pipe, prints one
    frame per interval, or one line with --json.

    \b
    Examples:
      redis-acker top
      redis-acker top --interval 500ms
      redis-acker top --json --interval 10s >> stats.jsonl
    """
    interval = max(interval, 100)
    frames = _overviews(store, interval)
    with contextlib.suppress(KeyboardInterrupt):
        if once or not store.out.on_terminal:
            for view, speed in frames:
                _print(store, view, speed)
                if once:
                    return
        else:
            _run_live(store, interval)


def _overviews(store: Store, interval: int) -> Iterator[tuple[Overview, dict[str, Rates]]]:
    """One overview per interval, with the rates since the one before."""
    from redis_acker.views.overview import rates, read_overview

    before = read_overview(store.acker, most_blocks=0)
    while True:
        time.sleep(interval / 1000)
        view = read_overview(store.acker, most_blocks=MOST_BLOCKS)
        yield view, rates(before, view)
        before = view


def _print(store: Store, view: Overview, speed: dict[str, Rates]) -> None:
    if store.out.as_json:
        store.out.document("stats", as_json(view, speed))
    else:
        show(store.out, frame(view, speed))
        store.out.line()
    sys.stdout.flush()


def _run_live(store: Store, interval: int) -> None:
    from rich.live import Live

    from redis_acker.views.overview import rates, read_overview

    before = view = read_overview(store.acker, most_blocks=MOST_BLOCKS)
    screen = console()
    with _keys() as keys, Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            live.update(drawn_frame(frame(view, rates(before, view))), refresh=True)
            if _quits_within(keys, interval / 1000):
                return
            before, view = view, read_overview(store.acker, most_blocks=MOST_BLOCKS)


def drawn_frame(found: Frame) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(shown(found.title), style="bold"), Text(shown(found.summary))]
    for table in found.tables:
        if table.rows:
            parts += [Text(), drawn(table.columns, table.rows)]
    return Group(*parts, Text(), Text("q quits", style="dim"))


@contextlib.contextmanager
def _keys() -> Iterator[int | None]:
    """Standard input, key by key; None if it is not a terminal. Restores the terminal's mode."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    mode = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, mode)


def _quits_within(keyboard: int | None, seconds: float) -> bool:
    """Whether a q comes within this time."""
    if keyboard is None:
        time.sleep(seconds)
        return False
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([keyboard], [], [], left)[0] and os.read(keyboard, 1) in (b"q", b"Q", b""):
            return True
    return False
