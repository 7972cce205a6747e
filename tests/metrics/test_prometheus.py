"""A real Prometheus scrapes the exporter, loads the rules, and has data for every panel of the dashboard."""

from __future__ import annotations

import json
import secrets
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redis_acker import Acker, Rotator, new_edges
from redis_acker.metrics.exporter import serve_metrics
from redis_acker.retries.book import DeadLetter, FailedAttempt, RetryBook
from redis_acker.store.lease import Lease
from redis_acker.store.spout_states import SpoutStates
from redis_acker.store.tracked_streams import TrackedStreamRecord, TrackedStreams
from tests.binaries import require_prometheus
from tests.servers import Server, start_server
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"

CONFIGURATION = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: redis-acker
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@pytest.mark.parametrize(
    "command",
    [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"], ["check", "config", "prometheus.yml"]],
)
def test_promtool_finds_nothing_wrong(command: list[str]) -> None:
    _, tool = require_prometheus()
    ran = subprocess.run([tool, *command], cwd=MONITORING, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_test() -> None:
    rules, tests = ((MONITORING / name).read_text() for name in ("alerts.yml", "alerts_test.yml"))
    alerts = [line.split()[-1] for line in rules.splitlines() if "- alert: " in line]
    assert len(alerts) == 7
    assert [alert for alert in alerts if f"alertname: {alert}" not in tests] == []


class Prometheus:
    """A Prometheus on 127.0.0.1 that scrapes one port."""

    def __init__(self, port: int, directory: Path) -> None:
        server, _ = require_prometheus()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            own_port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{own_port}"
        configuration = directory / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(rules=MONITORING / "alerts.yml", port=port))
        command = [server, f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'data'}"]
        self._log = (directory / "log").open("wb")
        self._process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{own_port}"], stdout=self._log, stderr=self._log
        )
        wait_until(self._answers, 60)

    def _answers(self) -> bool:
        assert self._process.poll() is None, Path(self._log.name).read_text()[-2000:]
        try:
            urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).close()
        except OSError:
            return False
        return True

    def query(self, expression: str) -> list[Any]:
        asked = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=30) as reply:
            found: list[Any] = json.load(reply)["data"]["result"]
        return found

    def alerts(self) -> set[str]:
        with urllib.request.urlopen(f"{self.url}/api/v1/alerts", timeout=30) as reply:
            return {alert["labels"]["alertname"] for alert in json.load(reply)["data"]["alerts"]}

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        self._log.close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = start_server("redis-7.0", "--maxmemory", "1gb")
    yield found
    found.stop()


def work(acker: Acker) -> None:
    """Something of everything that is shown."""
    roots, edges = acker.allocate("orders", 20), new_edges(20)
    acker.init(roots, edges, attempts=[1] * 10 + [2] * 10)
    acker.ack(roots[:10], edges[:10])
    acker.ack(roots[:2], edges[:2])
    acker.fail(roots[10:12], component="billing")
    Rotator(acker).once()


def expressions() -> list[str]:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_every_query_of_the_dashboard_returns_data(server: Server, tmp_path: Path) -> None:
    with Acker(server.url, namespace="shop", timeout_ms=1_000) as acker, serve_metrics(acker, port=0) as served:
        prometheus = Prometheus(served.port, tmp_path)
        try:
            bury(acker)
            Lease(acker, "orders", for_ms=3_600_000).renew()
            SpoutStates(acker.shards).note_lag(acker.spout_number("orders"), 3)
            TrackedStreams(acker).put("orders", TrackedStreamRecord("query", "id", 41))
            waiting = [
                expression.replace("$namespace", "shop").replace("$__rate_interval", "30s")
                for expression in expressions()
            ]
            assert len(waiting) > 25

            def are_answered() -> bool:
                work(acker)
                waiting[:] = [one for one in waiting if not has_numbers(prometheus.query(one))]
                return not waiting

            wait_until(are_answered, 60, poll_s=0.2)
            wait_until(lambda: prometheus.query("redis_acker_up") != [])
            assert prometheus.query("sum(redis_acker_completed_total)")[0]["value"][1] != "0"
            wait_until(lambda: bury(acker) and "RedisAckerDeadLetters" in prometheus.alerts(), 60, poll_s=0.2)
        finally:
            prometheus.stop()


def has_numbers(result: list[Any]) -> bool:
    """Whether a query gives a series with a number: a division by zero is no answer."""
    return any(series["value"][1] not in ("NaN", "+Inf") for series in result)


def bury(acker: Acker) -> bool:
    """One more dead letter: Prometheus sees growth only between two scrapes."""
    attempt = FailedAttempt(1, "failed", "", "", 1)
    RetryBook(acker, "orders").bury(DeadLetter(secrets.token_hex(), "orders", [attempt], False, None))
    return True
