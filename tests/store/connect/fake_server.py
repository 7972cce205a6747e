"""A server that answers every command with what a function says. It understands just enough of the protocol."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable

Answer = Callable[[list[bytes]], bytes]


class FakeServer:
    """Listens on 127.0.0.1 until stop()."""

    def __init__(self, answer: Answer) -> None:
        self.commands: list[bytes] = []
        fake = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    while command := self._read():
                        fake.commands.append(command[0].upper())
                        self.wfile.write(answer(command))

            def _read(self) -> list[bytes]:
                count = self.rfile.readline()[1:]
                return [self._read_bulk() for _ in range(int(count))] if count else []

            def _read_bulk(self) -> bytes:
                size = int(self.rfile.readline()[1:])
                return self.rfile.read(size + 2)[:-2]

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._server.server_address[1]}/0"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def bulk(text: str) -> bytes:
    return f"${len(text)}\r\n{text}\r\n".encode()


def unused_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
