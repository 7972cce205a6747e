"""Keeps other web sites away from the page: checks Host and Origin of every request, of the WebSocket too, and tells
the browser what the page may load."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

MOST_BYTES = 1_000_000
"""In the body of a request: engine.io takes no more, but would first read all of it."""

_SCRIPT = re.compile(rb"<script\b")


def policy(nonce: str, host: str) -> str:
    """The strictest content security policy the page runs under. Vue compiles templates in the browser, which needs
    unsafe-eval, and sets style attributes, which needs unsafe-inline for styles; scripts need this answer's nonce."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            f"connect-src 'self' ws://{host} wss://{host}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, *, hosts: Iterable[str], most_pages: int, open_pages: Callable[[], int]) -> None:
        """hosts: names under which the page may be asked for, without ports. open_pages: how many there are now; each
        takes memory, and some until their browser has been gone for a while."""
        self.app = app
        self._hosts = {host.lower() for host in hosts}
        self._most_pages, self._open_pages = most_pages, open_pages
        self._web_sockets = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if problem := self._problem(scope["type"], host, headers.get(b"origin")) or _embedding(headers):
            await _refuse(scope["type"], 403, problem, send)
        elif _is_too_long(headers):
            await _refuse(scope["type"], 413, f"A request has at most {MOST_BYTES:,} bytes, and says how many.", send)
        elif self._is_full(scope):
            full = f"{self._most_pages} pages are open already: close some of them."
            await _refuse(scope["type"], 503, full, send)
        elif scope["type"] == "websocket":
            self._web_sockets += 1
            try:
                await self.app(scope, receive, send)
            finally:
                self._web_sockets -= 1
        else:
            # A prefix from a proxy would be written into the page.
            scope["headers"] = [pair for pair in scope["headers"] if pair[0].lower() != b"x-forwarded-prefix"]
            await self.app(scope, receive, _Protected(send, host))

    def _is_full(self, scope: Scope) -> bool:
        if scope["type"] == "websocket":  # a page that connects again may have two of them for a while
            return self._web_sockets >= 2 * self._most_pages
        return scope["path"] == "/" and self._open_pages() >= self._most_pages

    def _problem(self, kind: str, host: str, origin: bytes | None) -> str | None:
        name = re.sub(r":\d+$", "", host)
        if name not in self._hosts or not re.fullmatch(r"[a-z0-9.\-]+|\[[0-9a-f:]+\]", name):
            return "This page is not served under that name: use --allow-host to add it."
        if origin is None:  # browsers always send it with a WebSocket, and with what another site asks for
            return "A WebSocket needs an Origin." if kind == "websocket" else None
        # Nothing more than a scheme stands before the host of an origin, and nothing behind it.
        if origin.decode("latin-1").lower() not in (f"http://{host}", f"https://{host}"):
            return "Requests from other sites are refused."
        return None


def _embedding(headers: dict[bytes, bytes]) -> str | None:
    """Browsers send no Origin with a picture, a script or a frame that another site embeds, but say that it is so. Each
    would count as an open page. A link on another site may lead here."""
    is_elsewhere = headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")
    is_link = (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")) == (b"navigate", b"document")
    return "Other sites cannot embed this page." if is_elsewhere and not is_link else None


def _is_too_long(headers: dict[bytes, bytes]) -> bool:
    length = headers.get(b"content-length", b"0")
    return b"transfer-encoding" in headers or not length.isdigit() or int(length) > MOST_BYTES


async def _refuse(kind: str, status: int, problem: str, send: Send) -> None:
    if kind == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": problem})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{problem}\n".encode()})


class _Protected:
    """Sends an answer on, with the headers that protect it. A page of HTML is held back whole, to mark its scripts."""

    def __init__(self, send: Send, host: str) -> None:
        self._send, self._host = send, host
        self._nonce = secrets.token_urlsafe(16)
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *self._headers()]
            is_html = any(
                name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in message["headers"]
            )
            if is_html:
                self._start = message
                return
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body += message.get("body", b"")
            if message.get("more_body"):
                return
            await self._send_html(self._start)
            return
        await self._send(message)

    async def _send_html(self, start: Message) -> None:
        body = _SCRIPT.sub(f'<script nonce="{self._nonce}"'.encode(), self._body)
        others = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
        start["headers"] = [*others, (b"content-length", str(len(body)).encode())]
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})

    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"content-security-policy", policy(self._nonce, self._host).encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]
