"""`redis-acker extend`: gives roots more time by hand."""

from __future__ import annotations

import click

from redis_acker.cli.options import ROOT, RootCommand, Store, store_options
from redis_acker.cli.output import duration
from redis_acker.cli.root_results import report, states_of


@click.command(cls=RootCommand)
@click.argument("roots", metavar="ROOT...", type=ROOT, nargs=-1, required=True)
@store_options
def extend(store: Store, roots: tuple[int, ...]) -> None:
    """Restart the clock of pending roots.

    Each gets the whole timeout of the namespace again, from now on. Roots that
    are finished or unknown are named, the others are extended, and the exit
    code is 4.

    \b
    Examples:
      redis-acker extend 0x0a4000000c3b1c00
      redis-acker pending --spout orders --json | jq -r .root |
          xargs redis-acker extend
    """
    states = states_of(store.acker, roots)
    for root, state in states.items():
        if state == "pending":
            states[root] = "extended" if store.acker.extend([root]) else "finished"
    timeout = duration(store.acker.settings.timeout_ms)
    report(store, "extended", states, good=("extended",), remark=f"They have {timeout} from now on.")
