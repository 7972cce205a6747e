"""`redis-acker quarantine`: what could not be read, and was set aside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from redis_acker.cli.options import MOST, Store, store_options
from redis_acker.cli.output import WERE, counted
from redis_acker.views.texts import byte_size, moment

if TYPE_CHECKING:
    from redis_acker.store.quarantine import SetAside

LIMIT = 50
"""Records that people are shown unless they ask for more."""

COLUMNS = ("shard", "from", "name", "set aside", "size", "begins with")

_SHOWN_BYTES = 20

_from_option = click.option("--from", "where", metavar="KEY", help="Only what was in this key, as list shows it.")


@click.group()
def quarantine() -> None:
    """List and purge what could not be read.

    Another program may write to the keys of a namespace. An entry, field or
    record there that makes no sense is set aside whole, and everything else
    goes on.

    \b
    Examples:
      redis-acker quarantine list
      redis-acker quarantine list --from completions:7 --json
      redis-acker quarantine purge --all
    """


@quarantine.command("list")
@_from_option
@click.option(
    "--limit", type=click.IntRange(1, MOST), metavar="N", help=f"At most N.  [default: {LIMIT}; with --json no limit]"
)
@store_options
def list_records(store: Store, where: str | None, limit: int | None) -> None:
    """List what could not be read.

    \b
    Examples:
      redis-acker quarantine list --limit 1000
      redis-acker quarantine list --json | jq -r '.parts[].base64 | @base64d'
    """
    if store.out.as_json:
        store.out.lines("set_aside", map(_as_json, islice(_chosen(store, where), limit)))
        return
    most = limit or LIMIT
    count = store.out.table(COLUMNS, map(_as_row, islice(_chosen(store, where), most)))
    if count == 0:
        store.out.note("The quarantine is empty." if where is None else f"Nothing from {where} is in quarantine.")
    elif count == most:
        store.out.note(f"Only the first {count:,} are shown; --limit shows more.")


@quarantine.command()
@_from_option
@click.option("--all", "everything", is_flag=True, help="Everything in quarantine.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_options
def purge(store: Store, where: str | None, everything: bool, yes: bool) -> None:
    """Delete what could not be read for good.

    \b
    Examples:
      redis-acker quarantine purge --from heads
      redis-acker quarantine purge --all --yes
    """
    if everything == bool(where):
        raise click.UsageError("Name a key with --from, or use --all.")
    if not yes:
        if store.out.as_json:
            raise click.UsageError("--json cannot ask for confirmation: add --yes.")
        click.confirm("Delete them for good?", abort=True, err=True)
    from redis_acker.store.quarantine import Quarantine

    kept = Quarantine(store.acker.shards)
    purged = sum(kept.remove(one) for one in _chosen(store, where))
    if store.out.as_json:
        store.out.document("quarantine_purged", {"purged": purged})
    else:
        store.out.line(f"{counted(purged, 'record', WERE)} deleted.")


def _chosen(store: Store, where: str | None) -> Iterator[SetAside]:
    from redis_acker.store.quarantine import Quarantine

    return (one for one in Quarantine(store.acker.shards) if where in (None, one.where))


def _as_row(one: SetAside) -> tuple[Any, ...]:
    begins = b" ".join(one.parts)[:_SHOWN_BYTES]
    return (
        one.shard,
        one.where,
        one.name.decode(errors="backslashreplace"),
        moment(one.at_ms),
        byte_size(sum(map(len, one.parts))),
        repr(begins),
    )


def _as_json(one: SetAside) -> dict[str, Any]:
    from redis_acker.store.message_ids import id_to_json

    return {
        "shard": one.shard,
        "from": one.where,
        "name": one.name.decode(errors="backslashreplace"),
        "at_ms": one.at_ms,
        "parts": [id_to_json(part) for part in one.parts],
    }
