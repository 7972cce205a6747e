"""`redis-acker pause` and `redis-acker resume`: stop a spout, and let it go on."""

from __future__ import annotations

import click

from redis_acker.cli.options import Store, store_options


@click.command()
@click.argument("spouts", metavar="SPOUT...", nargs=-1, required=True)
@store_options
def pause(store: Store, spouts: tuple[str, ...]) -> None:
    """Stop spouts from handing out messages.

    A paused spout hands out no new messages and starts no replays. What is
    pending goes on. A running driver heeds it within about a second, a later
    one from its start, until `redis-acker resume`. A tracked stream begins no
    micro-batch. Runs of tracked frames are not paused.

    SPOUT is a name as stats shows it, or without the number at its end: then
    it stands for all tasks.

    \b
    Examples:
      redis-acker pause shop/orders/0
      redis-acker pause shop/orders && redis-acker top
    """
    _turn(store, spouts, "paused")


@click.command()
@click.argument("spouts", metavar="SPOUT...", nargs=-1, required=True)
@store_options
def resume(store: Store, spouts: tuple[str, ...]) -> None:
    """Let paused spouts go on.

    \b
    Examples:
      redis-acker resume shop/orders/0
      redis-acker resume shop/orders
    """
    _turn(store, spouts, "resumed")


def _turn(store: Store, spouts: tuple[str, ...], done: str) -> None:
    from redis_acker.store.spout_states import SpoutStates, spouts_called

    found = {name: number for spout in spouts for name, number in spouts_called(store.acker, spout).items()}
    states = SpoutStates(store.acker.shards)
    turn = states.pause if done == "paused" else states.resume
    results = [(name, turn(number)) for name, number in found.items()]
    if store.out.as_json:
        store.out.lines(done, ({"spout": name, "changed": changed} for name, changed in results))
        return
    already = "is paused already" if done == "paused" else "is not paused"
    for name, changed in results:
        store.out.line(f"Spout {name} {f'is {done}' if changed else already}.")
