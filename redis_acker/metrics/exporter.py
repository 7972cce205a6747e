"""Serves the metrics of a namespace over HTTP, or through the registry of a program that has its own endpoint."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from redis_acker.errors import AckerError, BadInput, text_of
from redis_acker.metrics.families import Labels, families, up
from redis_acker.views.overview import Overview, read_overview

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from redis_acker.store.acker import Acker

FRESH_FOR_S = 1.0
"""A reading serves all scrapes for this long, so that several Prometheus servers cost the store no more than one."""

_CLIENT_TIMEOUT_S = 10.0
"""A client that is silent for this long is cut off: each holds a thread."""

MOST_CLIENTS = 50
"""Answered at once; further ones are cut off."""

log = logging.getLogger(__name__)


class StoreCollector:
    """Collects the metrics of one namespace: REGISTRY.register(StoreCollector(acker)) adds them to a program's own.

    A scrape costs the store the same whether ten roots are pending or ten million. While the store cannot be read, the
    only metric is redis_acker_up, with the value 0.
    """

    def __init__(
        self, acker: Acker | Callable[[], Acker], *, namespace: str | None = None, fresh_for_s: float = FRESH_FOR_S
    ) -> None:
        """acker may be a function that opens one, tried at every scrape until it works; then name the namespace."""
        self._open = acker if callable(acker) else lambda: acker
        self._namespace = acker.namespace if namespace is None and not callable(acker) else namespace or ""
        self._fresh_for_s = fresh_for_s
        self._labels = Labels.new()
        self._lock = threading.Lock()
        self._reading: Overview | None = None
        self._read_s = float("-inf")
        self._is_up: bool | None = None

    def describe(self) -> list[Metric]:
        """Nothing: a registry that asks must not read the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            if time.monotonic() - self._read_s >= self._fresh_for_s:
                self._reading = self._read()
                self._read_s = time.monotonic()
            view = self._reading
            found = [] if view is None else list(families(view, self._labels))
        yield up(self._namespace, view is not None)
        yield from found

    def _read(self) -> Overview | None:
        try:
            view = read_overview(self._open(), most_blocks=0)
        except Exception as error:  # whatever it is, Prometheus gets its answer
            if self._is_up is not False:
                log.error("The store cannot be read: %s", text_of(error, with_type=not isinstance(error, AckerError)))
            self._is_up = False
            return None
        if self._is_up is False:
            log.info("The store can be read again.")
        self._is_up = True
        return view


class MetricsServer:
    """An HTTP endpoint for Prometheus, in threads of its own. Also a context manager."""

    def __init__(self, collector: StoreCollector, *, port: int, address: str = "127.0.0.1") -> None:
        """port: 0 takes a free one. Raises BadInput if the address cannot be listened on."""
        from prometheus_client import CollectorRegistry, make_wsgi_app

        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        server_class = _Server6 if ":" in address else _Server
        try:
            self._server = make_server(address, port, make_wsgi_app(registry), server_class, _Handler)
        except (OSError, OverflowError) as error:
            raise BadInput(
                f"Cannot listen on {address} port {port} ({error}): choose another --port or --address."
            ) from None
        self.port: int = self._server.server_port
        self.url = f"http://{f'[{address}]' if ':' in address else address}:{self.port}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def serve_metrics(acker: Acker, *, port: int, address: str = "127.0.0.1") -> MetricsServer:
    """Serves the metrics of an acker's namespace from this process, until close()."""
    return MetricsServer(StoreCollector(acker), port=port, address=address)


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a line for each scrape is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *args: Any, **options: Any) -> None:
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
        super().__init__(*args, **options)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._places.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a client that goes away in the middle is no news either."""


class _Server6(_Server):
    address_family = socket.AF_INET6
