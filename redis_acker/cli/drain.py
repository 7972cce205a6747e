"""`redis-acker drain`: takes failures out of the store, for a replay."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from redis_acker.cli.choices import ARE, WERE, Pace, counted, failure_options, pace_options
from redis_acker.cli.options import Store, store_options
from redis_acker.errors import AckerError

if TYPE_CHECKING:
    from redis_acker.cli.drain_file import DrainFile
    from redis_acker.draining import Choice, Drain
    from redis_acker.failures import FailedRoot, TakenFailure


@dataclass
class Drained:
    """What a drain did, in roots."""

    drained: int = 0
    by_reason: dict[str, int] | None = None
    written_before: int = 0
    """Whose line an interrupted drain had written already."""
    with_other_drains: int = 0
    out: str | None = None
    dry_run: bool = False

    def count(self, roots: Iterable[FailedRoot]) -> None:
        reasons = self.by_reason = self.by_reason or {}
        for root in roots:
            self.drained += 1
            reasons[root.reason] = reasons.get(root.reason, 0) + 1


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write to this file.")
@click.option("--dry-run", is_flag=True, help="Show what there is and take nothing.")
@pace_options
@failure_options
@store_options
def drain(
    store: Store,
    out: Path | None,
    dry_run: bool,
    limit: int | None,
    rate: float | None,
    spout: str | None,
    reason: str | None,
    older_than: int,
    force: bool,
    take_over: bool,
) -> None:
    """Take failed and expired roots out for replay.

    Prints a JSON line for each root that failed or timed out and whose spout
    has no driver now: a driver replays its own failures. First, what is due
    is rotated.

    With --out the line is on the disk before its failure leaves the store.
    Interrupted, run it again with the same FILE: no root is lost or written
    twice. Without --out lines are only lent, because nobody knows whether a
    pipe was read to its end: failures leave the store when `replay` has read
    their lines, else the next drain prints them again.

    Two drains at once share the failures. --take-over also takes what other
    drains hold that may be at work still, or have it in their file.

    \b
    Examples:
      redis-acker drain --dry-run | jq -r .error | sort | uniq -c
      redis-acker drain --out failed.jsonl --older-than 5m
      redis-acker drain --reason timeout --limit 100 | redis-acker replay
    """
    from redis_acker.draining import Choice

    choice = Choice(spout, reason, older_than, limit)
    if dry_run:
        _show(store, choice, out)
        return
    from redis_acker.cli.drain_file import DrainFile
    from redis_acker.rotator import Rotator

    Rotator(store.acker).once()
    with DrainFile(out, store.namespace) if out else nullcontext() as file:
        if file and file.cut_bytes:
            store.out.note(f"{out} ended with half a line, which was cut off ({file.cut_bytes:,} bytes).")
        done = _drain(store, choice, file, Pace(rate), force=force, take_over=take_over)
    _report(store, done, out)


def _drain(
    store: Store, choice: Choice, file: DrainFile | None, pace: Pace, *, force: bool, take_over: bool
) -> Drained:
    from redis_acker.draining import BATCH_ROOTS, Drain
    from redis_acker.owners import Owner

    owner = file.owner if file else Owner.here("standard output")
    size = pace.batch_roots(BATCH_ROOTS)
    drain = Drain(store.acker, owner, choice, force=force, take_over=take_over, batch_roots=size)
    done = Drained(out=str(file.path) if file else None)
    with store.out.progress(choice.limit, "draining") as progress, closing(drain.batches()) as batches:
        for batch in batches:
            pace.wait(sum(len(taken.failure) for taken in batch))
            roots = [root for taken in batch for root in taken.roots()]
            _hand_out(store, file, drain, batch, roots, done)
            progress.advance(len(roots))
    explain(store, drain, choice.spout)
    done.with_other_drains = sum(drain.with_others.values())
    return done


def _hand_out(
    store: Store,
    file: DrainFile | None,
    drain: Drain,
    batch: list[TakenFailure],
    roots: list[FailedRoot],
    done: Drained,
) -> None:
    if file is None:
        _print(store, roots)
        done.count(roots)
        return
    # Only what an interrupted drain had taken can be in the file.
    is_old = any(taken.owner != file.owner for taken in batch)
    new = file.new_ones(roots) if is_old else roots
    file.write(new)
    drain.forget(batch)
    done.count(new)
    done.written_before += len(roots) - len(new)


def _print(store: Store, roots: Iterable[FailedRoot]) -> int:
    from redis_acker.cli.failure_lines import as_line

    count = 0
    for root in roots:
        sys.stdout.write(as_line(store.namespace, root) + "\n")
        count += 1
    sys.stdout.flush()
    return count


def _show(store: Store, choice: Choice, out: Path | None) -> None:
    from redis_acker.draining import Drain
    from redis_acker.owners import Owner

    roots = Drain(store.acker, Owner.here("nowhere"), choice).peek()
    done = Drained(dry_run=True, out=str(out) if out else None)
    if out:
        done.count(roots)
        _report(store, done, out)
    else:
        count = _print(store, roots)
        store.out.note(f"{counted(count, 'root')} would be drained. Nothing was taken.")


def _report(store: Store, done: Drained, out: Path | None) -> None:
    """For people on standard error, where lines went to standard output."""
    reasons = ", ".join(f"{count:,} {name}" for name, count in sorted((done.by_reason or {}).items()))
    if out is None:
        if done.drained:
            store.out.note(
                f"{counted(done.drained, 'root', ARE)} lent ({reasons}): `redis-acker replay` takes them in."
            )
        else:
            store.out.note("There is nothing to drain.")
    elif store.out.as_json:
        store.out.document("drained", {**vars(done), "by_reason": done.by_reason or {}})
    elif done.dry_run:
        store.out.line(f"{counted(done.drained, 'root')} would be written to {out}. Nothing was taken.")
    elif done.drained or done.written_before:
        before = f" {counted(done.written_before, 'root', WERE)} there already." if done.written_before else ""
        what = f" ({reasons})" if reasons else ""
        store.out.line(f"{counted(done.drained, 'root', WERE)} written to {out}{what}.{before}")
    else:
        store.out.line("There is nothing to drain.")


def explain(store: Store, drain: Drain, spout: str | None) -> None:
    """Says what was left out, and why. A spout that was asked for by name and is driven ends the command."""
    for name, driver in drain.driven.items():
        text = (
            f"Spout {name!r} is driven by {driver}, which replays its failures by itself: stop that first, or use "
            "--force for what it has not read."
        )
        if name == spout:
            raise AckerError(text)
        store.out.note(f"Left out: {text}")
    for owner, roots in drain.with_others.items():
        store.out.note(
            f"Left out: {counted(roots, 'root', ARE)} with a drain to {owner}. Run that one again if it was "
            "interrupted; if it never will be, --take-over takes them."
        )
