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

from redis_acker.cli.exits import PROBLEM
from redis_acker.cli.options import Failures, RateLimit, Store, failure_options, store_options
from redis_acker.cli.output import GO, WERE, counted
from redis_acker.errors import BadInput, escaped

if TYPE_CHECKING:
    from redis_acker.cli.output import Progress
    from redis_acker.retries.failed_roots import FailedRoot
    from redis_acker.retries.requests import ReplayRequests

_STDIN = Path("-")


@dataclass
class Replayed:
    """What a replay did, in roots."""

    replayed: int = 0
    replayed_before: int = 0
    """Left alone: their replay was already requested."""
    bad_lines: int = 0
    without_id: int = 0
    """Left in the store: without a message id, no source can find them."""


@click.command()
@click.argument("file", required=False, type=click.Path(allow_dash=True, path_type=Path))
@click.option("--from-store", is_flag=True, help="Take failures straight from the store, without a file.")
@failure_options
@store_options
def replay(store: Store, wanted: Failures, file: Path | None, from_store: bool) -> None:
    """Give failed messages back to their source.

    Reads the lines that `drain` writes, from FILE or standard input. The
    driver of each spout has its source hand the messages out again, as the
    attempt after the one that failed: within about a second if it is running,
    or else when it starts.

    Each root is replayed once, so you can interrupt this and run it again. A
    line that cannot be used is reported, the others are replayed, and the
    exit code is 1.

    --from-store takes the failures out of the store itself. The options from
    --spout on are for it; `drain --help` explains them. With a FILE, --limit
    is exact.

    \b
    Examples:
      redis-acker replay failed.jsonl
      redis-acker replay failed.jsonl --limit 10
      redis-acker replay --from-store --reason timeout --spout orders
      jq -c 'select(.component == "billing")' failed.jsonl | redis-acker replay
    """
    if from_store and file is not None:
        raise click.UsageError("--from-store reads no file: leave out FILE or --from-store.")
    if not from_store and wanted.are_chosen:
        raise click.UsageError(
            "--spout, --reason, --older-than, --force and --take-over choose in the store: add --from-store."
        )
    if not from_store and file is None and sys.stdin.isatty():
        raise click.UsageError("Name a file, pipe lines into it, or use --from-store.")
    pace = RateLimit(wanted.rate)
    done = _from_store(store, wanted, pace) if from_store else _from_file(store, file or _STDIN, wanted.limit, pace)
    _report(store, done)
    if done.bad_lines:
        raise click.exceptions.Exit(PROBLEM)


def _from_store(store: Store, wanted: Failures, pace: RateLimit) -> Replayed:
    from redis_acker.cli.drain import explain
    from redis_acker.retries.requests import ReplayRequests
    from redis_acker.retries.withdrawals import Owner, Withdrawal
    from redis_acker.store.rotator import Rotator

    Rotator(store.acker).once()
    requests, done = ReplayRequests(store.acker), Replayed()
    choice, owner = wanted.choice(with_ids=True), Owner.here("a replay")
    withdrawal = Withdrawal(store.acker, owner, choice, force=wanted.force, take_over=wanted.take_over)
    with store.out.progress(wanted.limit, "replaying") as progress, closing(withdrawal.failures()) as failures:
        for withdrawn in failures:
            for roots in pace.parts(withdrawal.roots_of(withdrawn)):
                _request(requests, roots, done)
                progress.advance(len(roots))
            withdrawal.forget(withdrawn)
    explain(store, withdrawal, wanted.spout)
    done.without_id = withdrawal.without_id
    return done


def _from_file(store: Store, path: Path, limit: int | None, pace: RateLimit) -> Replayed:
    from redis_acker.cli.failure_file import read_lines
    from redis_acker.retries.requests import ReplayRequests
    from redis_acker.retries.withdrawals import forget_lent

    done, places = Replayed(), set[tuple[str, int]]()
    name = "standard input" if path == _STDIN else str(path)
    with _opened(path) as file:
        requests = ReplayRequests(store.acker)
        with store.out.progress(_count_lines(file), "replaying") as progress:
            lines = read_lines(store.namespace, file)
            usable = islice(_usable(requests, name, lines, done, progress), limit)
            for roots in pace.parts(usable):
                _request(requests, roots, done)
                places |= {(root.spout, root.shard) for root in roots}
        forget_lent(store.acker, places)
    return done


def _usable(
    requests: ReplayRequests,
    name: str,
    lines: Iterator[tuple[int, FailedRoot | BadInput]],
    done: Replayed,
    progress: Progress,
) -> Iterator[FailedRoot]:
    """The roots that can be replayed. Reports and counts the other lines."""
    for number, found in lines:
        progress.advance()
        if isinstance(found, BadInput):
            why = str(found)
        else:
            try:
                requests.check(found)
            except BadInput as error:
                why = f"cannot be replayed: {error}"
            else:
                yield found
                continue
        done.bad_lines += 1
        click.echo(escaped(f"Line {number:,} of {name} {why.removesuffix('.')}."), err=True)


def _request(requests: ReplayRequests, roots: list[FailedRoot], done: Replayed) -> None:
    requested = requests.request(roots)
    done.replayed += requested.noted
    done.replayed_before += requested.again


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path == _STDIN:
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
    """For the progress bar; unknown for a pipe."""
    if not (sys.stderr.isatty() and file.seekable()):
        return None
    count = sum(1 for _ in file)
    file.seek(0)
    return count


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
