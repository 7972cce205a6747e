"""`redis-acker replay`: gives failed messages back to their source."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from redis_acker.cli.choices import GO, WERE, Pace, counted, failure_options, pace_options
from redis_acker.cli.exits import PROBLEM
from redis_acker.cli.options import Store, store_options
from redis_acker.errors import BadInput

if TYPE_CHECKING:
    from redis_acker.cli.output import Progress
    from redis_acker.draining import Choice
    from redis_acker.failures import FailedRoot
    from redis_acker.replay_requests import ReplayRequests

AT_ONCE = 500
"""Lines whose messages are asked for together."""


@dataclass
class Replayed:
    """What a replay did, in roots."""

    replayed: int = 0
    replayed_before: int = 0
    """Left alone: their replay was asked for already."""
    bad_lines: int = 0
    without_id: int = 0
    """Left in the store: without a message id no source can find them."""


@click.command()
@click.argument("file", required=False, type=click.Path(allow_dash=True, path_type=Path))
@click.option("--from-store", is_flag=True, help="Straight from the store, without a file.")
@pace_options
@failure_options
@store_options
def replay(
    store: Store,
    file: Path | None,
    from_store: bool,
    limit: int | None,
    rate: float | None,
    spout: str | None,
    reason: str | None,
    older_than: int,
    force: bool,
    take_over: bool,
) -> None:
    """Give failed messages back to their source.

    Reads FILE, or standard input, with lines as `drain` writes them. The driver
    of each spout has its source hand the messages out again, as the attempt
    after the one that failed: within about a second if it runs, else when it
    starts.

    Each root is replayed once: interrupt it and run it again as you like. A
    line that cannot be read is named, the others are replayed, and the exit
    code is 1.

    --from-store takes the failures out of the store itself. The options from
    --spout on are for it; `drain --help` explains them.

    \b
    Examples:
      redis-acker replay failed.jsonl
      redis-acker replay --from-store --reason timeout --spout orders
      jq -c 'select(.component == "billing")' failed.jsonl | redis-acker replay
    """
    from redis_acker.draining import Choice

    if from_store and file is not None:
        raise click.UsageError("--from-store reads no file: leave out FILE or --from-store.")
    if not from_store and (reason or older_than or force or take_over or spout):
        raise click.UsageError(
            "--spout, --reason, --older-than, --force and --take-over choose in the store: add --from-store."
        )
    if from_store:
        choice = Choice(spout, reason, older_than, limit, with_ids=True)
        done = _from_store(store, choice, Pace(rate), force=force, take_over=take_over)
    else:
        if file is None and sys.stdin.isatty():
            raise click.UsageError("Name a file, pipe lines into it, or use --from-store.")
        done = _from_file(store, file or Path("-"), limit, Pace(rate))
    _report(store, done)
    if done.bad_lines:
        raise click.exceptions.Exit(PROBLEM)


def _from_store(store: Store, choice: Choice, pace: Pace, *, force: bool, take_over: bool) -> Replayed:
    from redis_acker.cli.drain import explain
    from redis_acker.draining import Drain
    from redis_acker.owners import Owner
    from redis_acker.replay_requests import ReplayRequests
    from redis_acker.rotator import Rotator

    Rotator(store.acker).once()
    requests, done = ReplayRequests(store.acker), Replayed()
    size = pace.batch_roots(AT_ONCE)
    owner = Owner.here("a replay")
    drain = Drain(store.acker, owner, choice, force=force, take_over=take_over, batch_roots=size)
    with store.out.progress(choice.limit, "replaying") as progress, closing(drain.batches()) as batches:
        for batch in batches:
            roots = [root for taken in batch for root in taken.roots()]
            pace.wait(len(roots))
            _request(requests, roots, done)
            drain.forget(batch)
            progress.advance(len(roots))
    explain(store, drain, choice.spout)
    done.without_id = drain.without_id
    return done


def _from_file(store: Store, path: Path, limit: int | None, pace: Pace) -> Replayed:
    from redis_acker.cli.failure_lines import read_lines
    from redis_acker.failures import FailedRoot
    from redis_acker.replay_requests import ReplayRequests

    done, places = Replayed(), dict[tuple[str, int], FailedRoot]()
    most = pace.batch_roots(AT_ONCE)
    with _opened(path) as file:
        requests = ReplayRequests(store.acker)
        with store.out.progress(_count_lines(file), "replaying") as progress:
            lines = read_lines(store.namespace, file)
            usable = islice(_usable(requests, _name(path), lines, done, progress), limit)
            while batch := list(islice(usable, most)):
                pace.wait(len(batch))
                _request(requests, batch, done)
                places |= {(root.spout, root.shard): root for root in batch}
        requests.confirm(places.values())
    return done


def _usable(
    requests: ReplayRequests,
    name: str,
    lines: Iterator[tuple[int, FailedRoot | BadInput]],
    done: Replayed,
    progress: Progress,
) -> Iterator[FailedRoot]:
    """The roots that can be replayed. The other lines are named, and counted."""
    for number, found in lines:
        progress.advance()
        if isinstance(found, BadInput):
            why = str(found)
        else:
            try:
                requests.check(found)
            except BadInput as error:
                why = f"is of no use: {error}"
            else:
                yield found
                continue
        done.bad_lines += 1
        click.echo(f"Line {number:,} of {name} {why.removesuffix('.')}.", err=True)


def _request(requests: ReplayRequests, roots: list[FailedRoot], done: Replayed) -> None:
    requested = requests.request(roots)
    done.replayed += requested.noted
    done.replayed_before += requested.again


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}): name a file that `redis-acker drain` has written."
        ) from None
    with file:
        yield file


def _count_lines(file: IO[bytes]) -> int | None:
    """For the progress bar; not known of a pipe."""
    if not (sys.stderr.isatty() and file.seekable()):
        return None
    count = sum(1 for _ in file)
    file.seek(0)
    return count


def _name(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _report(store: Store, done: Replayed) -> None:
    if store.out.as_json:
        store.out.document("replayed", done)
        return
    parts = [f"{counted(done.replayed, 'message', GO)} back to the source."]
    if done.replayed_before:
        parts.append(f"{counted(done.replayed_before, 'message', WERE)} replayed before.")
    if done.bad_lines:
        parts.append(f"{counted(done.bad_lines, 'line')} could not be used.")
    if done.without_id:
        parts.append(f"{counted(done.without_id, 'root')} without message id stay in the store.")
    store.out.line(" ".join(parts))
