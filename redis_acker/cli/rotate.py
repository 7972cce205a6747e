"""`redis-acker rotate`: lets roots expire, once or as a service."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING

import click

from redis_acker.cli.options import Store, store_options
from redis_acker.cli.output import duration
from redis_acker.errors import ServerUnavailable

if TYPE_CHECKING:
    from redis_acker.rotator import Rotation

STOP_S = 5.0
"""How long the round that is under way may take after a signal. It may be cut off anywhere: nothing is lost by that."""

_AGAIN_S = 1.0

log = logging.getLogger(__name__)


@click.command()
@click.option("--watch", is_flag=True, help="Go on until SIGTERM or Ctrl-C.")
@store_options
def rotate(store: Store, watch: bool) -> None:
    """Age every bucket; --watch runs as a service.

    Roots whose timeout has passed fail with the reason `timeout`. That needs
    somebody who rotates: any number of rotators may run, the server's clock
    decides when a step is due. A rotator may be stopped at any point.

    With --watch it logs to standard error, waits for servers that are away,
    and ends with exit code 0 on SIGTERM, SIGINT.

    \b
    Examples:
      redis-acker rotate
      redis-acker rotate --watch
      redis-acker rotate --json | jq .expired
    """
    if watch:
        _watch(store)
        return
    from redis_acker.rotator import Rotator

    with store.out.progress(None, "rotating"):
        done = Rotator(store.acker).once()
    if store.out.as_json:
        store.out.document("rotation", done)
    else:
        _print(store, done)


def _print(store: Store, done: Rotation) -> None:
    store.out.fields(
        [
            ("steps", done.turned),
            ("timed out", done.expired),
            ("orphans dropped", done.orphans),
            ("next step in", duration(done.due_in_ms)),
        ]
    )


def _watch(store: Store) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # In a thread, because a call to a server that is away may take longer than a person waits for the end.
    errors: list[BaseException] = []
    worker = threading.Thread(target=_serve, args=(store, stop, errors), daemon=True)
    worker.start()
    stop.wait()
    worker.join(STOP_S)
    if errors:
        raise errors[0]
    log.info("Stopped.")


def _serve(store: Store, stop: threading.Event, errors: list[BaseException]) -> None:
    from redis_acker.rotator import Rotator

    try:
        while not stop.is_set():
            try:
                acker = store.acker
                break
            except ServerUnavailable as error:
                log.error("Waiting for the servers: %s", error)
                stop.wait(_AGAIN_S)
        else:
            return
        tick = duration(acker.settings.tick_ms)
        log.info("Rotating namespace %s: %d shards, a step every %s.", store.namespace, acker.settings.shards, tick)
        Rotator(acker).run(stop)
    except BaseException as error:  # for the main thread to explain
        errors.append(error)
        stop.set()
