"""`redis-acker fail`: fails roots by hand."""

from __future__ import annotations

import click

from redis_acker.cli.options import ROOT, RootCommand, Store, store_options
from redis_acker.cli.root_results import report, states_of

COMPONENT = "redis-acker fail"
"""What failures by hand give as the component that failed."""


@click.command(cls=RootCommand)
@click.argument("roots", metavar="ROOT...", type=ROOT, nargs=-1, required=True)
@click.option("--error", default="failed by hand", show_default=True, metavar="TEXT", help="Why, for people.")
@click.option("--fatal", is_flag=True, help="A replay would fail again: bury the message.")
@store_options
def fail(store: Store, roots: tuple[int, ...], error: str, fatal: bool) -> None:
    """Fail roots at once.

    The driver of their spout then replays the messages, or makes dead letters
    of them: with --fatal at once. A root whose init has not come yet fails
    when it comes. Roots that are finished or unknown are named, the others
    fail, and the exit code is 4.

    \b
    Examples:
      redis-acker fail 0x0a4000000c3b1c00
      redis-acker fail 738590338048163840 --error "customer is gone" --fatal
      redis-acker pending --older-than 1h --json | jq -r .root |
          xargs redis-acker fail --error stuck
    """
    states = states_of(store.acker, roots)
    for root, state in states.items():
        if state in ("pending", "orphan"):
            done = store.acker.fail([root], component=COMPONENT, error=error, fatal=fatal)
            states[root] = "failed" if done.failed else "will fail" if done.kept else "finished"
    report(store, "failed", states, good=("failed", "will fail"))
