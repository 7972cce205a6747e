"""A TCP proxy that loses replies: the server has executed the request, the client never learns of it."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

CHUNK_BYTES = 65_536


class CuttingProxy:
    """Forwards to one server, and cuts connections between execution and reply when told to.

    An exchange is what a client sends up to the first byte that comes back: one command, or one
    pipeline. Cutting it discards the reply and closes both sides. `command` limits the cuts to
    exchanges whose request holds those bytes (b"EVALSHA"), which spares the client's greetings on
    a new connection.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._let_pass = 0
        self._to_cut = 0
        self._probability = 0.0
        self._random = random.Random()
        self._command = b""
        #: How many exchanges have been cut so far.
        self.cuts = 0
        #: Whether the first half of a reply that is cut still reaches the client.
        self.halves = False
        #: How long each reply waits.
        self.delay_s = 0.0
        #: Requests that were held back, to be delivered late.
        self.held: list[bytes] = []
        self._to_hold = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    def cut_replies(self, times: int = 1, *, after: int = 0, command: bytes = b"") -> None:
        """Let `after` exchanges pass, then cut the next `times`."""
        with self._lock:
            self._let_pass, self._to_cut = after, times
            self._probability, self._command = 0.0, command.upper()

    def cut_randomly(self, probability: float, seed: int, *, command: bytes = b"") -> None:
        """Cut each exchange with this probability, until told otherwise; 0 ends it."""
        with self._lock:
            self._let_pass, self._to_cut = 0, 0
            self._probability, self._command = probability, command.upper()
            self._random.seed(seed)

    def hold_request(self, command: bytes) -> None:
        """Keep the next request that holds these bytes away from the server, and close its connection."""
        with self._lock:
            self._to_hold = command

    def deliver_late(self) -> bytes:
        """Send the oldest request that was held back to the server. Returns the reply."""
        with socket.create_connection(self._target) as server:
            server.sendall(self.held.pop(0))
            return server.recv(CHUNK_BYTES)

    def _must_hold(self, request: bytes) -> bool:
        with self._lock:
            if not self._to_hold or self._to_hold not in request:
                return False
            self.held.append(request)
            self._to_hold = b""
            return True

    def cut_all_connections(self) -> None:
        """Close every open connection now."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            _close(connection)

    def stop(self) -> None:
        _close(self._listener)
        self._accepting.join()
        self.cut_all_connections()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Link(self, client, server).start()

    def _must_cut(self, request: bytes) -> bool:
        with self._lock:
            if self._command not in request.upper():
                return False
            if self._let_pass > 0:
                self._let_pass -= 1
                return False
            cut = self._to_cut > 0 or self._random.random() < self._probability
            self._to_cut = max(0, self._to_cut - 1)
            self.cuts += cut
            return cut


class _Link:
    """One client's connection and the one made for it to the server."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._lock = threading.Lock()
        #: What the client has sent since the last reply began.
        self._request = b""

    def start(self) -> None:
        with self._proxy._lock:
            self._proxy._connections |= {self._client, self._server}
        for pump in (self._pump_requests, self._pump_replies):
            threading.Thread(target=self._run, args=(pump,), daemon=True).start()

    def _run(self, pump: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            pump()
        _close(self._client)
        _close(self._server)
        with self._proxy._lock:
            self._proxy._connections -= {self._client, self._server}

    def _pump_requests(self) -> None:
        while data := self._client.recv(CHUNK_BYTES):
            # Noted before it is sent: the reply may come back before this thread runs again.
            with self._lock:
                self._request += data
                request = self._request
            if self._proxy._must_hold(request):
                return
            self._server.sendall(data)

    def _pump_replies(self) -> None:
        while data := self._server.recv(CHUNK_BYTES):
            with self._lock:
                request, self._request = self._request, b""
            if self._proxy.delay_s:
                time.sleep(self._proxy.delay_s)
            if request and self._proxy._must_cut(request):
                if self._proxy.halves:
                    self._client.sendall(data[: len(data) // 2])
                return
            self._client.sendall(data)


def _close(connection: socket.socket) -> None:
    # shutdown wakes a thread that waits in recv or accept; close alone does not.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
