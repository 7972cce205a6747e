"""Serves the page from this process."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from nicegui import Client, ui, ui_run_with
from nicegui import app as nicegui_app
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from redis_acker.errors import BadInput
from redis_acker.ui.guard import LOOPBACK, Guard
from redis_acker.ui.page import Page
from redis_acker.ui.poller import Poller
from redis_acker.ui.rights import Rights

if TYPE_CHECKING:
    from redis_acker.store.acker import Acker

MOST_PAGES = 100
"""Pages that may be open at once: each takes memory."""

MOST_CONNECTIONS = 4 * MOST_PAGES

_CHATTY = ("uvicorn", "uvicorn.error", "nicegui")
"""Loggers that say much that is no news."""

_TWICE = ("engineio.server", "socketio.server")
"""Loggers that print what they say, besides logging it."""

SILENT_S = 20.0
"""A connection that has not asked for anything by then is closed."""

PATIENCE_S = 10.0
"""A browser may be silent for about this long, as a phone that changes its network is, or one on a busy machine. Then
its page is forgotten, with the right to act; when it comes back it loads a new one. With 3 s, NiceGUI's default, one
that does not answer within 2 s counts as silent."""

_STOP_S = 3
"""How long open pages may take to be closed."""


class _Impatient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Closes a connection whose first request does not come, or does not end."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.loop.call_later(SILENT_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        is_web_socket = self.transport.get_protocol() is not self
        if self.cycle is None and not (is_web_socket or self.transport.is_closing()):
            self.transport.close()


class PageServer:
    """The page of one namespace on one address. One in a process."""

    def __init__(
        self, poller: Poller, *, namespace: str, token: str | None, port: int, address: str, hosts: Iterable[str] = ()
    ) -> None:
        """token: what a page must know to act; None if none may. hosts: further names under which it may be asked for.
        Raises BadInput if the address cannot be listened on."""
        self._socket = _listen(address, port)
        name = f"[{address}]" if ":" in address else address
        self.url = f"http://{name}:{self._socket.getsockname()[1]}/"
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        rights = Rights(token)

        @ui.page("/")
        def root() -> None:
            Page(namespace, poller, rights)

        ui.run_with(
            app,
            title=f"redis-acker: {namespace}",
            dark=None,
            language="en-US",
            tailwind=False,
            show_welcome_message=False,
            reconnect_timeout=PATIENCE_S,
            # The guard marks the scripts of a page, which it can only do while they can be read.
            gzip_middleware_factory=None,
        )
        # NiceGUI's own answer is a page too: each would be kept for a minute, and leave less room for others.
        nicegui_app.add_exception_handler(404, http_exception_handler)  # type: ignore[arg-type]
        config = uvicorn.Config(
            Guard(
                app,
                hosts=(*LOOPBACK, name, *hosts),
                most_pages=MOST_PAGES,
                open_pages=lambda: len(Client.instances),
            ),
            http=_Impatient,
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=_STOP_S,
        )
        self._server = uvicorn.Server(config)
        # NiceGUI looks for its server among all objects of the process. Tuples that other threads are making right then
        # break with a SystemError, in the poller or in the program around it; so it is given the only one there is.
        vars(ui_run_with)["gc"] = SimpleNamespace(get_objects=lambda: [self._server])
        for chatty in _CHATTY:
            logging.getLogger(chatty).setLevel(logging.WARNING)
        for name in _TWICE:
            logging.getLogger(name).handlers.clear()

    def run(self, stop: threading.Event) -> None:
        """Serves until told to stop."""
        asyncio.run(self._serve(stop))

    async def _serve(self, stop: threading.Event) -> None:
        serving = asyncio.create_task(self._server._serve([self._socket]))  # serve() would take the signals over
        while not (stop.is_set() or serving.done()):
            await asyncio.sleep(0.1)
        self._server.should_exit = True
        await serving


@contextmanager
def serve_page(acker: Acker, *, port: int = 0, address: str = "127.0.0.1") -> Iterator[str]:
    """Serves the page of an acker's namespace from a thread of this process, to look and not to act. Gives its address;
    port 0 takes a free one."""
    poller, stop = Poller(lambda: acker), threading.Event()
    server = PageServer(poller, namespace=acker.namespace, token=None, port=port, address=address)
    thread = threading.Thread(target=server.run, args=(stop,), name="page", daemon=True)
    poller.start()
    thread.start()
    try:
        yield server.url
    finally:
        poller.stop()
        stop.set()
        thread.join()


def _listen(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family)
    except (OSError, OverflowError) as error:
        raise BadInput(
            f"Cannot listen on {address} port {port} ({error}): choose another --port or --address."
        ) from None
