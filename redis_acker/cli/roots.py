"""`redis-acker fail` and `redis-acker extend`: act on roots that are named one by one."""

from __future__ import annotations

from collections.abc import Sequence

import click

from redis_acker.cli.exits import NOT_FOUND
from redis_acker.cli.options import ROOT, RootCommand, Store, store_options
from redis_acker.views.texts import duration, root_text

COMPONENT = "redis-acker fail"
"""The component that failures by hand name."""

_WORDS = {
    "failed": "has failed.",
    "will fail": "has no init yet: it will fail when that comes.",
    "extended": "is extended.",
    "orphan": "has no init yet, so it has no clock to restart.",
    "finished": "is already finished: nothing was done.",
    "unknown": "is unknown: never seen, or finished long ago.",
}


@click.command(cls=RootCommand)
@click.argument("roots", metavar="ROOT...", type=ROOT, nargs=-1, required=True)
@click.option("--error", default="failed by hand", show_default=True, metavar="TEXT", help="Why, for people.")
@click.option("--fatal", is_flag=True, help="Do not retry: make a dead letter at once.")
@store_options
def fail(store: Store, roots: tuple[int, ...], error: str, fatal: bool) -> None:
    """Fail roots at once.

    The driver of their spout then replays the messages, or turns them into
    dead letters: with --fatal immediately. A root without an init fails when
    its init comes. Roots that are finished or unknown are reported, the others
    fail, and the exit code is 4.

    \b
    Examples:
      redis-acker fail 0x0a4000000c3b1c00
      redis-acker fail 738590338048163840 --error "customer is gone" --fatal
      redis-acker pending --older-than 1h --json | jq -r .root |
          xargs redis-acker fail --error stuck
    """
    states = _states(store, roots)
    for root, state in states.items():
        if state in ("pending", "orphan"):
            done = store.acker.fail([root], component=COMPONENT, error=error, fatal=fatal)
            states[root] = "failed" if done.failed else "will fail" if done.kept else "finished"
    _report(store, "failed", states, good=("failed", "will fail"))


@click.command(cls=RootCommand)
@click.argument("roots", metavar="ROOT...", type=ROOT, nargs=-1, required=True)
@store_options
def extend(store: Store, roots: tuple[int, ...]) -> None:
    """Restart the clock of pending roots.

    Each gets the full timeout of the namespace again, starting now. Roots that
    are finished or unknown are reported, the others are extended, and the exit
    code is 4.

    \b
    Examples:
      redis-acker extend 0x0a4000000c3b1c00
      redis-acker pending --spout orders --json | jq -r .root |
          xargs redis-acker extend
    """
    states = _states(store, roots)
    for root, state in states.items():
        if state == "pending":
            states[root] = "extended" if store.acker.extend([root]) else "finished"
    timeout = duration(store.acker.settings.timeout_ms)
    _report(store, "extended", states, good=("extended",), remark=f"The full timeout of {timeout} starts now.")


def _states(store: Store, roots: Sequence[int]) -> dict[int, str]:
    """The state of each root, before anything is done."""
    return {root: store.acker.inspect(root).state for root in roots}


def _report(store: Store, kind: str, states: dict[int, str], *, good: Sequence[str], remark: str = "") -> None:
    """Says what became of each root. Ends with exit code 4 unless all is good."""
    if store.out.as_json:
        store.out.lines(kind, ({"root": root_text(root), "state": state} for root, state in states.items()))
    else:
        for root, state in states.items():
            show = store.out.line if state in good else store.out.note
            show(f"Root {root_text(root)} {_WORDS[state]}")
    if remark and any(state in good for state in states.values()):
        store.out.note(remark)
    if any(state not in good for state in states.values()):
        raise click.exceptions.Exit(NOT_FOUND)
