"""A namespace with failures in it, for the commands that act."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis_acker import Acker, new_edges
from redis_acker.retries.book import RetryBook
from redis_acker.store.ids import U64Array
from redis_acker.store.message_ids import MessageId
from tests.cli.runs import SCRIPT

SPOUT = "orders"


class Shop:
    """A namespace, and the console script pointed at it."""

    def __init__(self, url: str, namespace: str, **settings: Any) -> None:
        self.url, self.namespace = url, namespace
        self.acker = Acker(url, namespace=namespace, **{"timeout_ms": 60_000, "block_size": 8, "shards": 2, **settings})
        self.environment = {**os.environ, "REDIS_ACKER_URL": url, "REDIS_ACKER_NAMESPACE": namespace, "COLUMNS": "80"}

    def run(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, *args], env=self.environment, input=stdin, capture_output=True, text=True, timeout=60
        )

    def succeed(self, *args: str, stdin: str = "") -> str:
        """What it prints, if it ends well."""
        ran = self.run(*args, stdin=stdin)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    @contextmanager
    def started(self, *args: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([SCRIPT, *args], env=self.environment, text=True, **{**pipes, **options})
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()

    def start(self, ids: Sequence[MessageId], *, attempts: int | Sequence[int] = 1, spout: str = SPOUT) -> U64Array:
        """Pending roots."""
        roots = self.acker.allocate(spout, len(ids))
        self.acker.init(roots, new_edges(len(ids)), message_ids=ids, attempts=attempts)
        return roots

    def start_failed(
        self, ids: Sequence[MessageId], *, attempts: int | Sequence[int] = 1, spout: str = SPOUT, error: str = "broken"
    ) -> U64Array:
        roots = self.start(ids, attempts=attempts, spout=spout)
        self.acker.fail(roots, component="parse", error=error)
        return roots

    def requested(self, spout: str = SPOUT) -> dict[MessageId, int]:
        """The messages that a driver would try again, and the attempt that failed last."""
        return {key: retry.attempt for key, retry in RetryBook(self.acker, spout).load().items()}

    def entries(self, spout: str = SPOUT) -> int:
        """Failures in the streams, in entries."""
        number = self.acker.spout_number(spout)
        clients = [self.acker.servers.client(shard) for shard in range(self.acker.settings.shards)]
        lengths: list[Any] = [
            client.xlen(keys.failures(number)) for client, keys in zip(clients, self.acker.shards.keys, strict=True)
        ]
        return sum(lengths)

    def withdrawn(self, spout: str = SPOUT) -> int:
        """Failures that are withdrawn, in entries."""
        number = self.acker.spout_number(spout)
        lengths: list[Any] = [
            self.acker.servers.client(shard).hlen(keys.withdrawn(number))
            for shard, keys in enumerate(self.acker.shards.keys)
        ]
        return sum(lengths)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def ids_of(text: str) -> list[Any]:
    return [line["message_id"] for line in lines(text)]


def numbered(count: int) -> list[str]:
    return [f"m{i}" for i in range(count)]
