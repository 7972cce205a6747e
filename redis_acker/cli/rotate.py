"""`redis-acker rotate`: lets roots expire, once or as a service."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import click

from redis_acker.cli.logs import start_logs
from redis_acker.cli.options import Store, store_options
from redis_acker.cli.services import stop_signal
from redis_acker.errors import ServerUnavailable
from redis_acker.views.texts import duration

if TYPE_CHECKING:
    from redis_acker.store.rotator import Rotation

STOP_S = 5.0
"""How long the current round may take after a signal. It may be cut off anywhere: nothing is lost."""

_AGAIN_S = 1.0

log = logging.getLogger(__name__)


@click.command()
@click.option("--watch", is_flag=True, help="Keep running until SIGTERM or Ctrl-C.")
@store_options
def rotate(store: Store, watch: bool) -> None:
    """Age every bucket; --watch runs as a service.

    Roots whose timeout has passed fail with the reason `timeout`, but only if
    a rotator runs. Any number of them may run at once: the server's clock
    decides when a step is due. You can stop a rotator at any point.

    With --watch it logs to standard error (with --json as JSON), waits for
    servers that are down, and ends with exit code 0 on SIGTERM or SIGINT.

    \b
    Examples:
      redis-acker rotate
      redis-acker rotate --watch
      redis-acker rotate --json | jq .expired
    """
    if watch:
        _watch(store)
        return
    from redis_acker.store.rotator import Rotator

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
    start_logs(as_json=store.out.as_json)
    stop = stop_signal()
    # In a thread, because a call to a server that is down may take longer than a person wants to wait.
    errors: list[BaseException] = []
    worker = threading.Thread(target=_serve, args=(store, stop, errors), daemon=True)
    worker.start()
    stop.wait()
    worker.join(STOP_S)
    if errors:
        raise errors[0]
    log.info("Stopped.")


def _serve(store: Store, stop: threading.Event, errors: list[BaseException]) -> None:
    from redis_acker.store.rotator import Rotator

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
        facts = {"namespace": store.namespace, "shards": acker.settings.shards, "tick_ms": acker.settings.tick_ms}
        log.info("Rotating namespace %s.", store.namespace, extra=facts)
        Rotator(acker).run(stop)
    except BaseException as error:  # for the main thread to explain
        errors.append(error)
        stop.set()
