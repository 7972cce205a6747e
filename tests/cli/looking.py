"""A namespace with something in it, for commands to look at."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from redis_acker import Acker, new_edges
from redis_acker.store.ids import U64Array
from tests.cli.runs import redis_acker

COUNT = 20


class Market:
    """20 orders: 0 to 4 completed, 5 and 6 failed, the others pending; 3 payments, all pending."""

    def __init__(self, url: str, namespace: str, **settings: Any) -> None:
        self.url, self.namespace = url, namespace
        self.acker = Acker(url, namespace=namespace, timeout_ms=600_000, **settings)
        self.roots = self.start("orders", COUNT)
        self.acker.ack(self.roots[:5], self.edges[:5])
        self.acker.fail(self.roots[5:7], component="split", error="no \x1b[31mcomma")
        self.start("payments", 3)

    def start(self, spout: str, count: int, **options: Any) -> U64Array:
        roots, edges = self.acker.allocate(spout, count), new_edges(count)
        options.setdefault("message_ids", [f"{spout}-{i}" for i in range(count)])
        self.acker.init(roots, edges, **options)
        if spout == "orders":
            self.edges = edges
        return roots

    def run(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a command on this namespace."""
        named = {"REDIS_ACKER_URL": self.url, "REDIS_ACKER_NAMESPACE": self.namespace}
        return redis_acker(*args, timeout_s=60, **{**named, **environment})

    def text(self, *args: str) -> str:
        """What a command that ends well prints for people."""
        ran = self.run(*args)
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout

    def lines(self, *args: str) -> list[dict[str, Any]]:
        """What a command that ends well prints for programs."""
        ran = self.run(*args, "--json")
        assert (ran.returncode, ran.stderr) == (0, "")
        return [self.parse(line) for line in ran.stdout.splitlines()]

    @staticmethod
    def parse(line: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(line)
        assert found["schema"] == 1
        return found

    def document(self, *args: str) -> dict[str, Any]:
        [found] = self.lines(*args)
        return found
