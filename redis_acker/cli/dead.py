"""`redis-acker dead`: the messages that were given up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from redis_acker.cli.choices import GO, WERE, counted
from redis_acker.cli.exits import PROBLEM, NotFound
from redis_acker.cli.options import Store, store_options
from redis_acker.cli.output import id_as_json, id_text
from redis_acker.errors import BadInput

if TYPE_CHECKING:
    from redis_acker.message_ids import MessageId
    from redis_acker.retries import DeadLetter, DeadLetters

LIMIT = 50
"""Letters that a person is shown unless asked for more."""

COLUMNS = ("message id", "spout", "attempts", "died", "reason", "component", "error")

_spout_option = click.option("--spout", metavar="NAME", help="Of this spout alone.")
_ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1)
_all_option = click.option("--all", "everything", is_flag=True, help="All of them; with --spout all of that one.")


@click.group()
def dead() -> None:
    """List, show, replay and purge dead letters.

    A message is dead after its last attempt, or after a fatal failure. Its
    letter tells the history, and keeps the values if they can be JSON.

    ID is the message id: digits mean a number or a text, whichever there is.
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
@click.option("--limit", type=click.IntRange(1), help=f"At most so many.  [default: {LIMIT}; with --json no limit]")
@click.option("--all", "everything", is_flag=True, help="All of them, streamed.")
@store_options
def list_letters(store: Store, spout: str | None, limit: int | None, everything: bool) -> None:
    """List dead letters.

    \b
    Examples:
      redis-acker dead list --spout shop/orders/0
      redis-acker dead list --json | jq -r .history[-1].error | sort | uniq -c
    """
    if everything and limit is not None:
        raise click.UsageError("--all has no limit: leave out --all or --limit.")
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
        ((one.attempt, _moment(one.at_ms), one.reason, one.component, one.error) for one in letter.history),
    )


@dead.command()
@_ids_argument
@_all_option
@click.option("--ask-source", is_flag=True, help="Not with the values of the letter: the source has them still.")
@_spout_option
@store_options
def replay(store: Store, ids: tuple[str, ...], everything: bool, ask_source: bool, spout: str | None) -> None:
    """Try dead messages once more.

    The driver of the spout emits the values of the letter, as the attempt
    after the last. Its source is not asked, because it has finished with the
    message; it is told again when that is complete. The letter is gone from
    here; should the message fail again, it comes back with a longer history.

    A letter without values can only be replayed with --ask-source, and only
    if the source hands out what it has finished with, as Redis streams and
    files of JSON lines do.

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
        click.echo(why.replace("from the source", "with --ask-source"), err=True)
    if refused:
        raise click.exceptions.Exit(PROBLEM)


@dead.command()
@_ids_argument
@_all_option
@click.option("--yes", is_flag=True, help="Do not ask.")
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
            raise click.UsageError("--json does not ask: add --yes.")
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
    from redis_acker.retries import DeadLetters

    return DeadLetters(store.acker, spout=spout)


def _chosen(letters: DeadLetters, ids: tuple[str, ...], everything: bool) -> Iterator[DeadLetter]:
    if everything == bool(ids):
        raise click.UsageError("Name the message ids, or use --all.")
    # All are found before anything is done to the first.
    return iter(letters) if everything else iter([_find(letters, one) for one in ids])


def _find(letters: DeadLetters, text: str) -> DeadLetter:
    found = [letter for message_id in _readings(text) for letter in letters.find(message_id)]
    if not found:
        raise NotFound(f"There is no dead letter of message {text!r}: `redis-acker dead list` shows those there are.")
    if len(found) > 1:
        ways = ", ".join(f"{_typed(letter.message_id)} of spout {letter.spout!r}" for letter in found)
        raise BadInput(f"Message {text!r} may be {ways}: write its type, and name its spout with --spout.")
    return found[0]


def _readings(text: str) -> list[MessageId]:
    """The message ids that a text may stand for."""
    from redis_acker.retries import decode_id

    readings: list[MessageId] = [text]
    if text[:2] in ("i:", "s:", "b:"):
        try:
            readings.append(decode_id(text.encode()))
        except ValueError:
            raise BadInput(f"{text!r} is no message id: after i: come digits, after b: base64.") from None
    elif text.lstrip("-").isdecimal():
        readings.append(int(text))
    return list(dict.fromkeys(readings))


def _typed(message_id: MessageId) -> str:
    from redis_acker.retries import encode_id

    return encode_id(message_id).decode()


def _as_row(letter: DeadLetter) -> tuple[Any, ...]:
    last = letter.history[-1]
    return (
        id_text(letter.message_id),
        letter.spout,
        last.attempt,
        _moment(last.at_ms),
        f"{last.reason}, fatal" if letter.fatal else last.reason,
        last.component,
        last.error,
    )


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "spout": letter.spout,
        "message_id": id_as_json(letter.message_id),
        "fatal": letter.fatal,
        "history": [vars(one) for one in letter.history],
        "payload": letter.payload,
        "stream": letter.stream,
        "is_readable": letter.is_readable,
    }


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
