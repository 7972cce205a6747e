"""`redis-acker drain`: withdraws failures from the store, for a replay."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from redis_acker.cli.options import Failures, RateLimit, Store, failure_options, store_options
from redis_acker.cli.output import ARE, WERE, counted
from redis_acker.errors import AckerError

if TYPE_CHECKING:
    from redis_acker.cli.failure_file import FailureFile
    from redis_acker.retries.failed_roots import FailedRoot
    from redis_acker.retries.withdrawals import Withdrawal


@dataclass
class Drained:
    """What a drain did, in roots."""

    drained: int = 0
    by_reason: dict[str, int] = field(default_factory=dict)
    written_before: int = 0
    """Roots whose line an interrupted drain had already written."""
    with_other_drains: int = 0
    out: str | None = None
    dry_run: bool = False

    def count(self, roots: Iterable[FailedRoot]) -> None:
        for root in roots:
            self.drained += 1
            self.by_reason[root.reason] = self.by_reason.get(root.reason, 0) + 1


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write to this file.")
@click.option("--dry-run", is_flag=True, help="Only show what would be drained.")
@failure_options
@store_options
def drain(store: Store, wanted: Failures, out: Path | None, dry_run: bool) -> None:
    """Take failed and expired roots out for replay.

    Rotates, then prints a JSON line for every root that failed or timed out.
    Spouts with a running driver are left out, because a driver replays its
    own failures.

    With --out, each line is on disk before its failure leaves the store. If
    the drain is interrupted, run it again with the same FILE: no root is lost
    or written twice.

    Without --out, failures are only lent, because a drain cannot know whether
    its lines arrived: they leave the store when `replay` has read the lines,
    or else the next drain prints them again.

    Two drains at the same time share the failures. --take-over also takes
    what other drains hold: use it if one was interrupted and will not be run
    again. One that is still at work, or has a file, would replay them too.

    \b
    Examples:
      redis-acker drain --dry-run | jq -r .error | sort | uniq -c
      redis-acker drain --out failed.jsonl --older-than 5m
      redis-acker drain --reason timeout --limit 100 | redis-acker replay
    """
    if dry_run:
        _show(store, wanted, out)
        return
    from redis_acker.cli.failure_file import FailureFile
    from redis_acker.store.rotator import Rotator

    Rotator(store.acker).once()
    with FailureFile(out, store.namespace) if out else nullcontext() as file:
        if file and file.cut_bytes:
            store.out.note(f"{out} ended with half a line, which was cut off ({file.cut_bytes:,} bytes).")
        done = _drain(store, wanted, file, RateLimit(wanted.rate))
    _report(store, done)


def _drain(store: Store, wanted: Failures, file: FailureFile | None, pace: RateLimit) -> Drained:
    from redis_acker.retries.withdrawals import Owner, Withdrawal

    owner = file.owner if file else Owner.here("standard output")
    withdrawal = Withdrawal(store.acker, owner, wanted.choice(), force=wanted.force, take_over=wanted.take_over)
    done = Drained(out=str(file.path) if file else None)
    with store.out.progress(wanted.limit, "draining") as progress, closing(withdrawal.failures()) as failures:
        for withdrawn in failures:
            roots = withdrawal.roots_of(withdrawn)
            # Only what an interrupted drain had withdrawn can be in the file.
            new = file.new_ones(roots) if file and withdrawn.owner != owner else roots
            for some in pace.parts(new):
                if file:
                    file.write(some)
                else:
                    _print(store, some)
                progress.advance(len(some))
            done.count(new)
            done.written_before += len(roots) - len(new)
            if file:
                withdrawal.forget(withdrawn)
    explain(store, withdrawal, wanted.spout)
    done.with_other_drains = sum(withdrawal.with_others.values())
    return done


def _show(store: Store, wanted: Failures, out: Path | None) -> None:
    from redis_acker.retries.withdrawals import Owner, Withdrawal

    roots = Withdrawal(store.acker, Owner.here("nowhere"), wanted.choice()).peek()
    done = Drained(dry_run=True, out=str(out) if out else None)
    if out:
        done.count(roots)
        _report(store, done)
    else:
        count = _print(store, roots)
        store.out.note(f"{counted(count, 'root')} would be drained. Nothing was taken.")


def _print(store: Store, roots: Iterable[FailedRoot]) -> int:
    from redis_acker.cli.failure_file import as_line

    count = 0
    for root in roots:
        sys.stdout.write(as_line(store.namespace, root) + "\n")
        count += 1
    sys.stdout.flush()
    return count


def _report(store: Store, done: Drained) -> None:
    """For people, on standard error if the lines went to standard output."""
    reasons = ", ".join(f"{count:,} {name}" for name, count in sorted(done.by_reason.items()))
    nothing = "There is nothing to drain."
    if done.out is None:
        lent = f"{counted(done.drained, 'root', ARE)} lent ({reasons}): pipe the lines into `redis-acker replay`."
        store.out.note(lent if done.drained else nothing)
    elif store.out.as_json:
        store.out.document("drained", done)
    elif done.dry_run:
        store.out.line(f"{counted(done.drained, 'root')} would be written to {done.out}. Nothing was taken.")
    elif done.drained or done.written_before:
        before = f" {counted(done.written_before, 'root', WERE)} already there." if done.written_before else ""
        what = f" ({reasons})" if reasons else ""
        store.out.line(f"{counted(done.drained, 'root', WERE)} written to {done.out}{what}.{before}")
    else:
        store.out.line(nothing)


def explain(store: Store, withdrawal: Withdrawal, spout: str | None) -> None:
    """Says what was left out, and why. Raises if the one spout that was asked for is driven."""
    for name, driver in withdrawal.driven.items():
        text = (
            f"Spout {name!r} is driven by {driver}, which replays its own failures: stop that driver, or use --force "
            "for what it has not read."
        )
        if name == spout:
            raise AckerError(text)
        store.out.note(f"Skipped: {text}")
    for owner, roots in withdrawal.with_others.items():
        store.out.note(
            f"Skipped: {counted(roots, 'root', ARE)} held by a drain to {owner}. If it was interrupted, run it again; "
            "if it never will be, --take-over takes them."
        )
