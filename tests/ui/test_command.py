"""`redis-acker ui`: who gets an answer, and how it starts and ends."""

from __future__ import annotations

import base64
import gc
import http.client
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from redis_acker.ui import server
from redis_acker.ui.guard import MOST_BYTES
from redis_acker.ui.server import MOST_CONNECTIONS, MOST_PAGES, serve_page
from tests.backends import Servers, make_backend
from tests.cli.looking import Market
from tests.cli.runs import redis_acker
from tests.ui.serving import TOKEN, Served
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def served(servers: Servers) -> Iterator[Served]:
    backend = make_backend("redis-7.0", servers)
    assert isinstance(backend.target, str)
    market = Market(backend.target, "ui-of-a-market")
    found = Served(backend.target, market.namespace, "--allow-host", "ops.example.com")
    yield found
    found.stop()
    market.acker.close()
    backend.delete_keys(market.namespace)


def get(served: Served, path: str = "/", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(served.host, timeout=30)
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read().decode()
    connection.close()
    return found


def test_the_page_tells_the_browser_to_load_nothing_from_elsewhere(served: Served) -> None:
    status, headers, body = get(served)
    assert status == 200
    rules = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe-inline" not in rules["script-src"]
    assert rules["connect-src"] == f"'self' ws://{served.host} wss://{served.host}"
    nonces = re.findall(r"<script nonce=\"([^\"]+)\"", body)
    assert len(set(nonces)) == 1
    assert f"'nonce-{nonces[0]}'" in rules["script-src"]
    assert len(re.findall(r"<script\b", body)) == len(nonces)
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", body)
    assert headers["x-content-type-options"] == "nosniff"


def test_two_answers_have_different_nonces(served: Served) -> None:
    assert get(served)[1]["content-security-policy"] != get(served)[1]["content-security-policy"]


def test_only_known_names_are_answered(served: Served) -> None:
    port = served.host.split(":")[1]
    known = [served.host, f"localhost:{port}", "ops.example.com", "OPS.example.com:8080"]
    strange = ["evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example", "127.0.0.1:1@evil.example"]
    assert [get(served, Host=name)[0] for name in known] == [200] * 4
    assert [get(served, Host=name)[0] for name in strange] == [403] * 5


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "http://[", "//HOST", "http://HOST/"],
)
def test_other_sites_are_refused(served: Served, origin: str) -> None:
    origin = origin.replace("HOST", served.host)
    assert get(served, Origin=origin)[0] == 403
    assert handshake(served, origin) == 403


@pytest.mark.parametrize(
    ("site", "mode", "target", "status"),
    [
        ("none", "navigate", "document", 200),
        ("same-origin", "no-cors", "script", 200),
        ("cross-site", "navigate", "document", 200),
        ("cross-site", "no-cors", "image", 403),
        ("same-site", "no-cors", "script", 403),
        ("cross-site", "navigate", "iframe", 403),
    ],
)
def test_other_sites_may_link_to_the_page_and_not_embed_it(
    served: Served, site: str, mode: str, target: str, status: int
) -> None:
    said = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": target}
    assert get(served, **said)[0] == status


def test_the_page_itself_gets_its_web_socket(served: Served) -> None:
    assert get(served, Origin=f"http://{served.host}")[0] == 200
    assert handshake(served, f"http://{served.host}") == 101
    assert handshake(served, None) == 403
    assert handshake(served, "http://evil.example", host="evil.example") == 403


def handshake(served: Served, origin: str | None, *, host: str | None = None) -> int:
    """The status with which a WebSocket is answered."""
    with web_socket(served, origin, host=host) as connection:
        return int(connection.recv(100).split()[1])


def web_socket(served: Served, origin: str | None, *, host: str | None = None) -> socket.socket:
    address, port = served.host.split(":")
    lines = [
        "GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1",
        f"Host: {host or served.host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(b'0123456789abcdef').decode()}",
        *([f"Origin: {origin}"] if origin else []),
    ]
    connection = socket.create_connection((address, int(port)), timeout=30)
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    return connection


def test_the_number_of_web_sockets_is_bounded_and_the_page_is_still_served(served: Served) -> None:
    own = f"http://{served.host}"
    sockets = [web_socket(served, own) for _ in range(2 * MOST_PAGES)]
    assert {one.recv(100).split()[1] for one in sockets} == {b"101"}
    assert handshake(served, own) == 403
    assert get(served)[0] == 200
    for one in sockets:
        one.close()
    wait_until(lambda: handshake(served, own) == 101, 60)


def test_a_prefix_of_a_proxy_is_not_written_into_the_page(served: Served) -> None:
    assert "/evil" not in get(served, **{"X-Forwarded-Prefix": "/evil"})[2]


def test_there_is_nothing_else_and_asking_for_it_takes_no_place_of_a_page(served: Served) -> None:
    assert [get(served, path)[0] for path in ("/docs", "/openapi.json", "/redoc", "/../etc/passwd")] == [404] * 4
    assert [get(served, path)[0] for path in ["/nothing", "/_nicegui/nothing"] * MOST_PAGES] == [404] * 2 * MOST_PAGES
    assert get(served)[0] == 200


def test_a_request_without_an_end_is_not_read_and_all_that_is_said_is_a_fact_on_a_line(served: Served) -> None:
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=polling&sid=gone"
    assert post(served, path, b"2") == 400
    assert post(served, path, b"2" * (MOST_BYTES + 1)) == 413
    assert post(served, path, iter([b"2"])) == 413  # in chunks
    wait_until(lambda: "Invalid session gone" in served.log.text)
    assert all(line.startswith("time=") for line in served.log.text.splitlines())


def post(served: Served, path: str, body: bytes | Iterator[bytes]) -> int:
    connection = http.client.HTTPConnection(served.host, timeout=30)
    connection.request("POST", path, body, encode_chunked=True)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_well_when_told_to(market: Market, number: signal.Signals) -> None:
    served = Served(market.url, market.namespace, "--json")
    try:
        assert get(served)[0] == 200
        served.process.send_signal(number)
        assert served.process.wait(20) == 0
        wait_until(lambda: '"Stopped."' in served.log.text)
        assert "Traceback" not in served.log.text
        assert all(line.startswith('{"schema": 1, "kind": "log"') for line in served.log.text.splitlines())
    finally:
        served.stop()


def test_a_token_is_made_up_if_none_is_given_and_is_not_in_the_log(market: Market) -> None:
    served = Served(market.url, market.namespace, "--allow-actions")
    try:
        wait_until(lambda: "Token for actions: " in served.log.text)
        [line] = [line for line in served.log.text.splitlines() if line.startswith("Token for actions: ")]
        token = line.split()[-1]
        assert len(token) >= 20
        assert served.log.text.count(token) == 1
    finally:
        served.stop()
    given = Served(market.url, market.namespace, "--allow-actions", "--token", TOKEN)
    given.stop()
    assert TOKEN not in given.log.text


def test_bad_input_is_answered_in_one_sentence(market: Market) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = market.run("ui", "--port", str(taken.getsockname()[1]))
    assert (used.returncode, "choose another --port" in used.stderr) == (2, True)
    unknown = market.run("ui", "--port", "0", "-n", "nowhere")
    assert (unknown.returncode, "does not exist" in unknown.stderr) == (4, True)
    short = market.run("ui", "--allow-actions", "--token", "short")
    assert (short.returncode, "use 12 or more" in short.stderr) == (2, True)
    assert "Traceback" not in used.stderr + unknown.stderr + short.stderr


def test_an_acker_serves_its_own_page_from_a_thread(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has one page. Connections that ask for nothing, and pages that nobody closes, are bounded. Nobody looks
    at objects of other threads, which may be half made: a tuple that is seen then breaks with a SystemError."""
    monkeypatch.setattr(server, "SILENT_S", 0.3)
    monkeypatch.setattr(gc, "get_objects", lambda *_: pytest.fail("all objects of the process are looked at"))
    with serve_page(market.acker) as address:
        host, port = address.split("/")[2].split(":")
        silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(MOST_CONNECTIONS + 20)]
        silent[1].sendall(b"GET / HTTP/1.1\r\nHost: ")  # and no more
        assert [one.recv(1) for one in silent] == [b""] * len(silent)
        for one in silent:
            one.close()
        with urllib.request.urlopen(address, timeout=30) as page:
            assert f"<title>redis-acker: {market.namespace}</title>".encode() in page.read()
        for _ in range(MOST_PAGES - 1):
            urllib.request.urlopen(address, timeout=30).close()
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(address, timeout=30)
        assert refused.value.read() == b"100 pages are open already: close some of them.\n"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=30)


WITHOUT = """
import sys
sys.modules["nicegui"] = None
from redis_acker.cli.main import main
main(["ui", "--url", "redis://127.0.0.1:1"])
"""


def test_without_the_extra_it_says_how_to_install_it() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1)
    assert "pip install 'redis-acker[ui]'" in ran.stderr


def test_the_help_names_the_command() -> None:
    assert "Show a live page in the browser." in redis_acker("--help").stdout
