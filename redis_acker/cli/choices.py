"""Options that say which failures, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from redis_acker.cli.options import AGE

ARE, WERE, GO = ("is", "are"), ("was", "were"), ("goes", "go")
"""Verbs for one and for several."""

F = TypeVar("F", bound=Callable[..., Any])


def failure_options(command: F) -> F:
    """Adds --spout, --reason, --older-than, --force and --take-over."""
    for option in reversed(
        [
            click.option("--spout", metavar="NAME", help="Of this spout alone."),
            click.option("--reason", type=click.Choice(["failed", "timeout"]), help="For this reason alone."),
            click.option(
                "--older-than", type=AGE, default=0, metavar="AGE", help="Failed at least so long ago: 90s, 5m, 2h."
            ),
            click.option("--force", is_flag=True, help="Also of spouts whose driver runs, what it has not read."),
            click.option("--take-over", is_flag=True, help="Also what unfinished drains hold, see above."),
        ]
    ):
        command = option(command)
    return command


def pace_options(command: F) -> F:
    """Adds --limit and --rate."""
    limit = click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many roots.")
    rate = click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="So many roots a second.")
    return limit(rate(command))


class Pace:
    """Waits, so that no more than so many roots a second are dealt with."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._free_at_s = time.monotonic()

    def batch_roots(self, most: int) -> int:
        """How many to deal with at once: not more than in about a second."""
        return most if self._rate is None else max(1, min(most, int(self._rate)))

    def wait(self, amount: int) -> None:
        """Called before an amount is dealt with: waits for its turn."""
        if self._rate is None:
            return
        now_s = time.monotonic()
        if self._free_at_s > now_s:
            time.sleep(self._free_at_s - now_s)
        self._free_at_s = max(self._free_at_s, now_s) + amount / self._rate


def counted(count: int, noun: str, verbs: tuple[str, str] = ("", "")) -> str:
    """ "1 root is", "5 roots are"."""
    verb = verbs[count != 1]
    return f"{count:,} {noun}{'s' if count != 1 else ''}{verb and ' '}{verb}"
