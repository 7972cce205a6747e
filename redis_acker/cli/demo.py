"""`redis-acker demo`: a Spark job with poison rows and a killed worker, whose books must balance."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from redis_acker.cli.exits import PROBLEM
from redis_acker.cli.options import Store, store_options
from redis_acker.errors import AckerError

if TYPE_CHECKING:
    from redis_acker.acker import Acker
    from spark_integration.demo import Books

MESSAGES = 20_000
LOCAL = "local[2,4]"
"""Two cores; a task may be tried four times."""

TIMEOUT_MS = 30_000
URL_VARIABLE = "REDIS_ACKER_URL"


class NotInstalled(AckerError):
    """Raised when something that a command needs is not on this machine."""


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
@click.option("--keep", is_flag=True, help="Go on with some traffic until Ctrl-C, for the other commands to look at.")
@store_options
def demo(store: Store, messages: int, master: str, keep: bool) -> None:
    """Track a Spark job, and balance its books.

    Sentences are split and their words counted, on a server of its own unless
    --url names one. Every hundredth sentence cannot be split: it fails alone, is
    tried again, and becomes a dead letter. One Python worker is killed in the
    middle of its work. In the end every message is completed or dead, and every
    word is counted once; else the exit code is 1.

    \b
    Try it, then look at it from a second terminal:
      redis-acker demo --keep
    """
    if store.out.as_json and keep:
        raise click.UsageError("--keep is for people: leave out --json.")
    _check_installed()
    with _open(store) as acker:
        books = _run(store, acker, messages, master)
        _show(store, acker, books)
        if keep:
            _keep(store, acker)
    if not books.balanced:
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
            "The demo needs Java 17 or newer for Spark, and finds none: install it (apt-get install "
            "default-jre-headless, brew install openjdk@17) or set JAVA_HOME."
        )


@contextmanager
def _open(store: Store) -> Iterator[Acker]:
    """The namespace, on the server that was named or on one that ends with the demo."""
    from redis_acker.acker import Acker
    from redis_acker.embedded import EmbeddedServer

    with ExitStack() as stack:
        target = store.target
        if target is None and not os.environ.get(URL_VARIABLE):
            target = stack.enter_context(EmbeddedServer()).url
        namespace = "demo" if store.namespace == "default" else store.namespace
        yield stack.enter_context(Acker(target, namespace=namespace, timeout_ms=TIMEOUT_MS))


def _run(store: Store, acker: Acker, messages: int, master: str) -> Books:
    from spark_integration import demo as job

    store.out.note(f"Starting Spark ({master}) ...")
    with job.spark_session(master) as spark:
        store.out.note(
            f"Counting the words of {messages:,} sentences; one in {job.POISON_EVERY} is poison, a worker is killed ..."
        )
        return job.run(spark, acker, messages, progress=False if store.out.as_json else None)


def _show(store: Store, acker: Acker, books: Books) -> None:
    if store.out.as_json:
        store.out.document("demo", {**asdict(books), "balanced": books.balanced})
        return
    out = store.out
    out.table(
        ["", "messages"],
        [
            ("in", books.messages),
            ("completed", books.completed),
            (f"dead, after {books.failed_attempts:,} failed attempts", books.dead),
            ("pending", books.pending),
            ("lost", books.lost),
        ],
    )
    words = ", ".join(f"{word} {count:,}" for word, count in books.top)
    out.line()
    out.line(f"{books.words:,} of {books.expected_words:,} words counted: {words}, ...")
    out.line(f"{books.seconds:.1f} s, one worker killed on the way.")
    if books.balanced:
        out.line("The books balance.", fg="green", bold=True)
    else:
        out.line("The books do NOT balance.", fg="red", bold=True)


def _keep(store: Store, acker: Acker) -> None:
    from redis_acker.cli.demo_traffic import traffic

    options = f"--url {acker.urls[0]} -n {acker.namespace}" if len(acker.urls) == 1 else f"-n {acker.namespace}"
    out = store.out
    out.line()
    out.line("A spout 'orders' goes on: most of its messages complete, some fail, some time out.")
    out.line("In a second terminal:")
    for command in ("top", "stats", "pending", "inspect <a root that pending shows>", "drain --dry-run", "dead list"):
        out.line(f"  {sys.argv[0]} {command} {options}")
    out.line("Ctrl-C ends it.")
    sys.stdout.flush()
    stop = threading.Event()
    try:
        traffic(acker, stop)
    except KeyboardInterrupt:
        stop.set()
