"""`redis-acker dead`: messages that were given up."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from redis_acker.cli.exits import PROBLEM
from redis_acker.cli.options import MOST, Store, store_options
from redis_acker.cli.output import GO, WERE, counted
from redis_acker.errors import BadInput, NotFound, escaped
from redis_acker.views.texts import id_text, moment

if TYPE_CHECKING:
    from redis_acker.retries.book import DeadLetter
    from redis_acker.retries.dead_letters import DeadLetters
    from redis_acker.store.message_ids import MessageId

LIMIT = 50
"""Letters that people are shown unless they ask for more."""

COLUMNS = ("message id", "spout", "attempts", "died", "reason", "component", "error")

_spout_option = click.option("--spout", metavar="NAME", help="Only this spout.")
_ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1)
_all_option = click.option("--all", "everything", is_flag=True, help="All dead letters, or all of --spout.")


@click.group()
def dead() -> None:
    """List, show, replay and purge dead letters.

    A message is dead after its last attempt, or after a fatal failure. Its
    letter has the history, and the values if they can be written as JSON.

    ID is the message id. Digits match a number or a text, whichever exists;
    i:7 is the number, s:7 the text, b:Nw== the bytes in base64.

    \b
    Examples:
      redis-acker dead list
      redis-acker dead show 4711
      redis-acker dead replay 4711 4712
      redis-acker dead purge --all --spout shop/orders/0
    """


@dead.command("list")
@_spout_option
@click.option(
    "--limit", type=click.IntRange(1, MOST), metavar="N", help=f"At most N.  [default: {LIMIT}; with --json no limit]"
)
@click.option("--all", "everything", is_flag=True, help="No limit; streamed.")
@store_options
def list_letters(store: Store, spout: str | None, limit: int | None, everything: bool) -> None:
    """List dead letters.

    \b
    Examples:
      redis-acker dead list --spout shop/orders/0
      redis-acker dead list --json | jq -r .history[-1].error | sort | uniq -c
    """
    if everything and limit is not None:
        raise click.UsageError("--all means no limit: leave out --all or --limit.")
    letters = _letters(store, spout)
    if store.out.as_json:
        store.out.lines("dead_letter", map(_as_json, islice(letters, limit)))
        return
    count = store.out.table(COLUMNS, map(_as_row, islice(letters, None if everything else limit or LIMIT)))
    total = len(letters)
    if total == 0:
        store.out.note("There are no dead letters.")
    elif total > count:
        store.out.note(f"{total - count:,} more; --all shows them.")


@dead.command()
@click.argument("message_id", metavar="ID")
@_spout_option
@store_options
def show(store: Store, message_id: str, spout: str | None) -> None:
    """Show one dead letter, with its history.

    \b
    Example:
      redis-acker dead show 4711
    """
    letter = _find(_letters(store, spout), message_id)
    if store.out.as_json:
        store.out.document("dead_letter", _as_json(letter))
        return
    store.out.fields(
        [
            ("message id", id_text(letter.message_id)),
            ("spout", letter.spout),
            ("fatal", letter.fatal),
            ("values", None if letter.payload is None else repr(letter.payload)),
        ]
    )
    store.out.line()
    store.out.table(
        ("attempt", "failed", "reason", "component", "error"),
        ((one.attempt, moment(one.at_ms), one.reason, one.component, one.error) for one in letter.history),
    )


@dead.command()
@_ids_argument
@_all_option
@click.option("--ask-source", is_flag=True, help="Have the source hand the message out, not the letter.")
@_spout_option
@store_options
def replay(store: Store, ids: tuple[str, ...], everything: bool, ask_source: bool, spout: str | None) -> None:
    """Try dead messages once more.

    The driver of the spout emits the values of the letter again, as the next
    attempt. It does not ask the source, which has finished with the message,
    but tells it again when the message completes. The letter is removed; if
    the message fails again, it comes back with a longer history.

    A letter without values needs --ask-source, which works if the source can
    hand out what it has finished with, as Redis streams and files of JSON
    lines can.

    \b
    Examples:
      redis-acker dead replay 4711
      redis-acker dead replay --all --spout shop/orders/0
    """
    letters = _letters(store, spout)
    chosen = _chosen(letters, ids, everything)
    replayed, refused = 0, []
    with store.out.progress(len(letters) if everything else len(ids), "replaying") as progress:
        for letter in chosen:
            progress.advance()
            try:
                replayed += letters.replay(letter, from_source=ask_source)
            except BadInput as error:
                refused.append(str(error))
    if store.out.as_json:
        store.out.document("dead_replayed", {"replayed": replayed, "refused": len(refused)})
    else:
        store.out.line(f"{counted(replayed, 'dead message', GO)} back to work.")
    for why in refused:
        click.echo(escaped(why.replace("from the source", "with --ask-source")), err=True)
    if refused:
        raise click.exceptions.Exit(PROBLEM)


@dead.command()
@_ids_argument
@_all_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_spout_option
@store_options
def purge(store: Store, ids: tuple[str, ...], everything: bool, yes: bool, spout: str | None) -> None:
    """Delete dead letters for good.

    \b
    Examples:
      redis-acker dead purge 4711
      redis-acker dead purge --all --yes
    """
    letters = _letters(store, spout)
    chosen: Iterable[DeadLetter] = _chosen(letters, ids, everything)
    count = len(letters)
    if not everything:
        chosen = list(chosen)
        count = len(chosen)
    if count and not yes:
        if store.out.as_json:
            raise click.UsageError("--json cannot ask for confirmation: add --yes.")
        click.confirm(f"Delete {counted(count, 'dead letter')} for good?", abort=True, err=True)
    with store.out.progress(count, "purging") as progress:
        purged = 0
        for letter in chosen:
            progress.advance()
            purged += letters.remove(letter)
    if store.out.as_json:
        store.out.document("dead_purged", {"purged": purged})
    else:
        store.out.line(f"{counted(purged, 'dead letter', WERE)} deleted.")


def _letters(store: Store, spout: str | None) -> DeadLetters:
    from redis_acker.retries.dead_letters import DeadLetters

    return DeadLetters(store.acker, spout=spout)


def _chosen(letters: DeadLetters, ids: tuple[str, ...], everything: bool) -> Iterator[DeadLetter]:
    if everything == bool(ids):
        raise click.UsageError("Name message ids, or use --all.")
    # Finds all of them before anything is done to the first.
    return iter(letters) if everything else iter([_find(letters, one) for one in ids])


def _find(letters: DeadLetters, text: str) -> DeadLetter:
    from redis_acker.store.message_ids import id_to_text

    found = [letter for message_id in _readings(text) for letter in letters.find(message_id)]
    if not found:
        raise NotFound(f"There is no dead letter of message {reprlib.repr(text)}: `redis-acker dead list` lists them.")
    if len(found) > 1:
        ways = ", ".join(f"{id_to_text(letter.message_id)} of spout {letter.spout!r}" for letter in found)
        raise BadInput(f"Message {text!r} may be {ways}: write its type, or name its spout with --spout.")
    return found[0]


def _readings(text: str) -> list[MessageId]:
    """The message ids that a text may mean."""
    from redis_acker.store.message_ids import id_from_text

    readings = [id_from_text(f"s:{text}")]
    if text[:2] in ("i:", "s:", "b:"):
        readings.append(id_from_text(text))
    elif re.fullmatch(r"-?[0-9]{1,19}", text):
        readings.append(int(text))
    return list(dict.fromkeys(readings))


def _as_row(letter: DeadLetter) -> tuple[Any, ...]:
    last = letter.history[-1]
    return (
        id_text(letter.message_id),
        letter.spout,
        last.attempt,
        moment(last.at_ms),
        f"{last.reason}, fatal" if letter.fatal else last.reason,
        last.component,
        last.error,
    )


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    from redis_acker.store.message_ids import id_to_json

    return {
        "spout": letter.spout,
        "message_id": id_to_json(letter.message_id),
        "fatal": letter.fatal,
        "history": [vars(one) for one in letter.history],
        "payload": letter.payload,
        "stream": letter.stream,
        "is_readable": letter.is_readable,
    }
