"""`redis-acker rotate`: once, and as a service."""

from __future__ import annotations

import json
import signal
import threading

import pytest

from tests.cli.acting_commands.conftest import NewShop
from tests.cli.acting_commands.shop import Shop
from tests.servers import Server
from tests.waiting import wait_until


class Log:
    """What a process has printed on standard error so far."""

    def __init__(self, pipe: object) -> None:
        self.text = ""
        self._pipe = pipe
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._pipe:  # type: ignore[attr-defined]
            self.text += line

    def wait_for(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.text.count(text) >= times, 30)


def test_once_with_a_summary(new_shop: NewShop) -> None:
    shop = new_shop(timeout_ms=100, buckets=2)
    shop.start(["a", "b"])
    printed = wait_until(lambda: [text] if "timed out        2" in (text := shop.succeed("rotate")) else [])
    assert [line.split("  ")[0] for line in printed[0].splitlines()] == [
        "steps",
        "timed out",
        "orphans dropped",
        "next step in",
    ]
    document = json.loads(shop.succeed("rotate", "--json"))
    assert list(document) == ["schema", "kind", "turned", "expired", "orphans", "due_in_ms"]
    assert (document["kind"], document["expired"]) == ("rotation", 0)
    assert shop.acker.pending_count() == 0


def test_nothing_due_is_said_so(shop: Shop) -> None:
    shop.start(["a"])
    printed = [line.rsplit(None, 1) for line in shop.succeed("rotate").splitlines()]
    assert [printed[0][1], printed[1][1], printed[2][1]] == ["0", "0", "0"]
    assert shop.acker.pending_count() == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_service_rotates_and_stops_gracefully(new_shop: NewShop, number: signal.Signals) -> None:
    shop = new_shop(timeout_ms=300)
    with shop.started("rotate", "--watch") as process:
        log = Log(process.stderr)
        log.wait_for("Rotating namespace")
        shop.start(["a", "b", "c"])
        wait_until(lambda: shop.acker.pending_count() == 0)
        log.wait_for("roots timed out")
        process.send_signal(number)
        assert process.wait(20) == 0
        log.wait_for("Stopped.")
    assert "Traceback" not in log.text
    assert process.stdout is not None


def test_the_service_survives_an_outage(durable_server: Server, namespace: str) -> None:
    shop = Shop(durable_server.url, namespace, timeout_ms=400)
    with shop.started("rotate", "--watch") as process:
        log = Log(process.stderr)
        log.wait_for("Rotating namespace")
        durable_server.kill()
        log.wait_for("Rotation failed, roots expire late until it works again: The server")
        durable_server.restart()
        log.wait_for("Rotation works again.")
        shop.start(["a"])
        wait_until(lambda: shop.acker.pending_count() == 0)
        durable_server.kill()
        log.wait_for("Rotation failed", 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, "it stops also while the server is away"
    assert "Traceback" not in log.text


def test_the_service_waits_for_servers_that_are_not_there_yet(durable_server: Server, namespace: str) -> None:
    shop = Shop(durable_server.url, namespace, timeout_ms=400)
    durable_server.kill()
    with shop.started("rotate", "--watch") as process:
        log = Log(process.stderr)
        log.wait_for("Waiting for the servers: The server")
        durable_server.restart()
        log.wait_for("Rotating namespace")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_the_service_ends_with_an_error_that_waiting_does_not_mend(shop: Shop) -> None:
    ran = shop.run("rotate", "--watch", "--namespace", "nowhere")
    assert ran.returncode == 4
    assert "Namespace 'nowhere' does not exist" in ran.stderr
    assert "Traceback" not in ran.stderr
