"""`redis-acker demo`: a Spark job with poison rows and a killed worker, after which every message is accounted for."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from redis_acker.cli.exits import PROBLEM
from redis_acker.cli.options import URL_VARIABLE, Store, store_options
from redis_acker.errors import NotInstalled

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker
    from spark_integration.demo import Balance
    from spark_integration.demo_killed import SecondRun

MESSAGES = 20_000
LOCAL = "local[2,4]"
"""Two cores; a task may be tried four times."""

TIMEOUT_MS = 30_000

SPOUT = "orders"
WAVE = 50
"""Messages per second with --keep."""

COMPLETE, FAIL = 0.8, 0.05
"""Shares of a wave that complete and fail; the rest is never fully acked, and times out."""


@click.command()
@click.option("--messages", type=click.IntRange(1), default=MESSAGES, show_default=True, help="How many sentences.")
@click.option(
    "--master",
    default=LOCAL,
    show_default=True,
    envvar="SPARK_MASTER_URL",
    show_envvar=True,
    help="Where Spark runs.",
)
@click.option("--keep", is_flag=True, help="Keep some traffic going until Ctrl-C, to try other commands on.")
@store_options
def demo(store: Store, messages: int, master: str, keep: bool) -> None:
    """Track a Spark job that loses a worker.

    Splits sentences and counts their words, on a server of its own unless
    --url names one. Every hundredth sentence cannot be split: it fails alone,
    is tried again, and becomes a dead letter. One Python worker is killed in
    the middle of its work. In the end every message must be completed or dead,
    and every word counted once, or the exit code is 1.

    Then, on a local Spark, the driver of a second job is killed half way, and
    the next run continues where it stopped.

    \b
    Examples:
      redis-acker demo
      redis-acker demo --keep    # then look at it from a second terminal
    """
    if store.out.as_json and keep:
        raise click.UsageError("--keep is for people: leave out --json.")
    _check_installed()
    with _open(store) as acker:
        balance, second_run = _run(store, acker, messages, master)
        _show(store, balance, second_run)
        if keep:
            _keep(store, acker)
    if not (balance.balanced and (second_run is None or second_run.balanced)):
        raise click.exceptions.Exit(PROBLEM)


def _check_installed() -> None:
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        raise NotInstalled("The demo needs Spark, which is not installed: pip install 'redis-acker[spark]'.") from None
    home = os.environ.get("JAVA_HOME")
    if not shutil.which(os.path.join(home, "bin", "java") if home else "java"):
        raise NotInstalled(
            "The demo needs Java 17 or newer for Spark, and there is none: install it (apt-get install "
            "default-jre-headless, brew install openjdk@17) or set JAVA_HOME."
        )


@contextmanager
def _open(store: Store) -> Iterator[Acker]:
    """The namespace, on the server that was named, or on one that stops with the demo."""
    from redis_acker.server.embedded import EmbeddedServer
    from redis_acker.store.acker import Acker

    with ExitStack() as stack:
        target = store.target
        if target is None and not os.environ.get(URL_VARIABLE):
            target = stack.enter_context(EmbeddedServer()).url
        namespace = "demo" if store.namespace == "default" else store.namespace
        yield stack.enter_context(Acker(target, namespace=namespace, timeout_ms=TIMEOUT_MS))


def _run(store: Store, acker: Acker, messages: int, master: str) -> tuple[Balance, SecondRun | None]:
    from spark_integration import demo as job
    from spark_integration import demo_killed

    if store.out.as_json:
        logging.getLogger("spark_integration").setLevel(logging.ERROR)  # what it would tell is in the document
    store.out.note(f"Starting Spark ({master}) ...")
    with job.spark_session(master) as spark:
        store.out.note(
            f"Counting the words of {messages:,} sentences; one in {job.POISON_EVERY} is poison, a worker is killed ..."
        )
        balance = job.run(spark, acker, messages, progress=False if store.out.as_json else None)
        if not master.startswith("local"):
            return balance, None  # a second application would wait for cores
        store.out.note(f"Delivering {messages:,} messages, in a job whose driver is killed half way ...")
        return balance, demo_killed.run(spark, acker, messages, store.out.note)


def _show(store: Store, balance: Balance, second_run: SecondRun | None) -> None:
    is_balanced = balance.balanced and (second_run is None or second_run.balanced)
    if store.out.as_json:
        killed = None if second_run is None else asdict(second_run)
        store.out.document("demo", {**asdict(balance), "killed": killed, "balanced": is_balanced})
        return
    out = store.out
    out.table(
        ["", "messages"],
        [
            ("in", balance.messages),
            ("completed", balance.completed),
            (f"dead, after {balance.failed_attempts:,} failed attempts", balance.dead),
            ("pending", balance.pending),
            ("lost", balance.lost),
        ],
    )
    words = ", ".join(f"{word} {count:,}" for word, count in balance.top)
    out.line()
    out.line(f"{balance.words:,} of {balance.expected_words:,} words counted: {words}, ...")
    out.line(f"{balance.seconds:.1f} s, with one worker killed.")
    if second_run:
        out.line()
        left = second_run.messages - second_run.completed_before
        out.line(f"The driver that was killed had completed {second_run.completed_before:,} messages. The next")
        twice = f"{second_run.delivered_twice:,} were delivered twice"
        out.line(f"run did the other {left:,} in {second_run.seconds:.1f} s; {twice}.")
    if is_balanced:
        out.line("The books balance.", fg="green", bold=True)
    else:
        out.line("The books do NOT balance.", fg="red", bold=True)


def _keep(store: Store, acker: Acker) -> None:
    options = f"--url {acker.urls[0]} -n {acker.namespace}" if len(acker.urls) == 1 else f"-n {acker.namespace}"
    out = store.out
    out.line()
    out.line(f"Spout {SPOUT!r} keeps going: most of its messages complete, some fail, some time out.")
    out.line("In a second terminal:")
    for command in ("top", "stats", "pending", "inspect <a root that pending shows>", "drain --dry-run", "dead list"):
        out.line(f"  {sys.argv[0]} {command} {options}")
    with _page(acker) as address:
        out.line(f"In a browser: {address or 'nothing, because the page needs redis-acker[ui]'}")
        out.line("Ctrl-C ends it.")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            _traffic(acker)


@contextmanager
def _page(acker: Acker) -> Iterator[str | None]:
    """The address of a live page; None where it is not installed."""
    try:
        from redis_acker.ui.server import serve_page
    except ImportError:
        yield None
        return
    with serve_page(acker) as address:
        yield address


def _traffic(acker: Acker) -> None:
    """Emits a wave of messages every second, for ever."""
    from redis_acker.store.ids import new_edges
    from redis_acker.store.rotator import Rotator

    with Rotator(acker).start():
        for start in itertools.count(0, WAVE):
            roots = acker.allocate(SPOUT, WAVE)
            first, second = new_edges(WAVE), new_edges(WAVE)
            acker.init(roots, first, message_ids=[f"order-{start + i:06}" for i in range(WAVE)], quiet=True)
            acker.ack(roots, first ^ second)
            time.sleep(0.5)
            order = random.sample(range(WAVE), WAVE)
            done, failed = order[: int(COMPLETE * WAVE)], order[int(COMPLETE * WAVE) : int((COMPLETE + FAIL) * WAVE)]
            acker.ack(roots[done], second[done])
            acker.fail(roots[failed], component="payment", error="card declined")
            time.sleep(0.5)
