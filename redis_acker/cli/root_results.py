"""What a command did to roots that were named one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from redis_acker.cli.exits import NOT_FOUND
from redis_acker.cli.options import Store
from redis_acker.cli.output import root_text

if TYPE_CHECKING:
    from redis_acker.acker import Acker

_WORDS = {
    "failed": "has failed.",
    "will fail": "has no init yet: it fails when that comes.",
    "extended": "is extended.",
    "orphan": "has no init yet, so no clock that could be restarted.",
    "finished": "is finished: nothing was done.",
    "unknown": "is unknown: never seen, or finished long ago.",
}


def states_of(acker: Acker, roots: Sequence[int]) -> dict[int, str]:
    """The state of each root, before anything is done."""
    return {root: acker.inspect(root).state for root in roots}


def report(store: Store, kind: str, states: dict[int, str], *, good: Sequence[str], remark: str = "") -> None:
    """Says what became of each root. Ends with exit code 4 unless all is good."""
    if store.out.as_json:
        store.out.lines(kind, ({"root": root_text(root), "state": state} for root, state in states.items()))
    for root, state in states.items():
        text = f"Root {root_text(root)} {_WORDS[state]}"
        if store.out.as_json:
            continue
        if state in good:
            store.out.line(text)
        else:
            store.out.note(text)
    if any(state in good for state in states.values()) and remark:
        store.out.note(remark)
    if any(state not in good for state in states.values()):
        raise click.exceptions.Exit(NOT_FOUND)
