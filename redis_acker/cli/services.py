"""What commands that run as services have in common: they run until they are told to stop."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from redis_acker.errors import NotInstalled, ServerUnavailable

if TYPE_CHECKING:
    from redis_acker.cli.options import Store

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

log = logging.getLogger(__name__)


def listening_options(port: int, *, can: str) -> Callable[[AnyFunction], AnyFunction]:
    """Where a command listens. can: what anyone can do who reaches it."""

    def add(command: AnyFunction) -> AnyFunction:
        ports, where = click.IntRange(0, 65_535), f"Where to listen. Anyone who reaches it can {can}."
        for option in (
            click.option("--address", default="127.0.0.1", metavar="ADDRESS", show_default=True, help=where),
            click.option(
                "--port", type=ports, default=port, metavar="N", show_default=True, help="The port; 0 takes a free one."
            ),
        ):
            command = option(command)
        return command

    return add


def stop_signal() -> threading.Event:
    """Is set by SIGTERM or Ctrl-C from now on."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """For the imports of a command: explains which extra is missing."""
    try:
        yield
    except ImportError as error:
        raise NotInstalled(f"This command is not installed ({error}): pip install 'redis-acker[{extra}]'.") from error


def try_store(store: Store) -> None:
    """Opens the store. One that is down is no reason to end, since it may come; a misspelt namespace is."""
    try:
        _ = store.acker
    except ServerUnavailable as error:
        log.error("Waiting for the servers: %s", error)
