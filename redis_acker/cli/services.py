"""What commands that run until they are told to stop have in common."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redis_acker.errors import NotInstalled, ServerUnavailable

if TYPE_CHECKING:
    from redis_acker.cli.options import Store

log = logging.getLogger(__name__)


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
