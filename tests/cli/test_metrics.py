"""`redis-acker metrics`: the endpoint as a service."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys

import pytest

from redis_acker import Acker, new_edges
from tests.cli.acting_commands.shop import Shop
from tests.cli.acting_commands.test_rotate import Log
from tests.cli.looking import Market
from tests.cli.runs import SCRIPT, killed_by_an_error, redis_acker
from tests.metrics.scraping import Scrape
from tests.servers import Server
from tests.waiting import wait_until

PASSWORD = "hunter2-very-secret"


def url_in(log: Log) -> str:
    wait_until(lambda: "Serving metrics." in log.text, 30)
    found = re.search(r"http://[^\s\"]+/metrics", log.text)
    assert found
    return found[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(market: Market, number: signal.Signals) -> None:
    command = [SCRIPT, "metrics", "--port", "0", "--url", market.url, "-n", market.namespace]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, killed_by_an_error(process):
        log = Log(process.stderr)
        found = Scrape.of(url_in(log))
        process.send_signal(number)
        assert process.wait(20) == 0
        log.wait_for("Stopped.")
    assert found.total("pending", namespace=market.namespace) == 16
    assert found.total("component_failed_total", component="split") == 2
    assert re.match(r"time=\S+Z level=info text=\"Serving metrics.\" namespace=\S+ url=http://127.0.0.1:", log.text)


def test_what_people_and_programs_see_elsewhere_is_the_same(market: Market) -> None:
    found, document = Scrape.direct(market.acker), market.document("stats", "--interval", "1ms")
    for spout in document["spouts"]:
        for name in ("initialised", "completed", "replayed", "buried"):
            assert found.total(f"{name}_total", spout=spout["name"]) == spout[name]
        assert found.total("pending", spout=spout["name"]) == spout["pending"]
    assert document["components"] == [{"component": "split", "failed": 2}]


def test_a_server_that_is_down_at_first_is_waited_for_and_its_password_is_not_logged(durable_server: Server) -> None:
    with durable_server.client() as client:
        client.config_set("requirepass", PASSWORD)
    url = durable_server.url.replace("redis://", f"redis://:{PASSWORD}@")
    shop = Shop(url, "shop")
    shop.acker.init(shop.acker.allocate("orders", 5), new_edges(5))
    durable_server.kill()
    with shop.started("metrics", "--port", "0", "--json") as process:
        log = Log(process.stderr)
        served = url_in(log)
        assert Scrape.of(served).total("up") == 0
        durable_server.restart()  # without the password: that it is refused is an answer too
        with durable_server.client() as client:
            client.config_set("requirepass", PASSWORD)
        wait_until(lambda: Scrape.of(served).total("up") == 1, 30)
        assert Scrape.of(served).total("pending") == 5
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    lines = [json.loads(line) for line in log.text.splitlines()]
    assert {line["kind"] for line in lines} == {"log"}
    assert lines[0]["text"].startswith("Waiting for the servers")
    assert PASSWORD not in log.text


def test_bad_input_is_answered_in_one_sentence(market: Market) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        used = market.run("metrics", "--port", port)
    assert (used.returncode, used.stderr.count("\n")) == (2, 1)
    assert re.search(rf"Error: Cannot listen on 127.0.0.1 port {port} .*: choose another", used.stderr)
    unknown = market.run("metrics", "--port", "0", "-n", "nowhere")
    assert (unknown.returncode, "does not exist" in unknown.stderr) == (4, True)
    assert market.run("metrics", "--port", "70000").returncode == 2


WITHOUT = """
import sys
sys.modules["prometheus_client"] = sys.modules["prometheus_client.core"] = None
from redis_acker.cli.main import main
main(["metrics", "--url", "redis://127.0.0.1:1"])
"""


def test_without_the_extra_it_says_how_to_install_it() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: ")
    assert "pip install 'redis-acker[metrics]'" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_the_inspector_may_read_every_metric(durable_server: Server) -> None:
    with Acker(durable_server.url, namespace="shop") as acker, durable_server.client() as client:
        acker.init(acker.allocate("orders", 5), new_edges(5))
        rules = redis_acker("acl", "--namespace", "shop", "--role", "inspector", "--json").stdout
        client.execute_command("ACL", "SETUSER", "looker", *json.loads(rules)["rules"], ">pw")
        whole = Scrape.direct(acker).names()
    with Acker(durable_server.url.replace("redis://", "redis://looker:pw@"), namespace="shop", create=False) as looker:
        assert Scrape.direct(looker).names() == whole
    assert "redis_acker_server_script_seconds_bucket" in whole
