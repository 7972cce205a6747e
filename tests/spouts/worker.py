"""A process with a topology, to be killed: `python -m tests.spouts.worker JSON`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis

from redis_acker import Acker, BasicBolt, LocalRunner, Observer, RetryPolicy, TaskContext
from redis_acker.components.bolt import OutputCollector
from redis_acker.components.tuples import Tuple
from redis_acker.store.message_ids import MessageId
from redis_acker.store.transport import Command
from tests.spouts.kit import PATIENCE_S, TOPOLOGY, topology
from tests.spouts.places import spout_from

TIMEOUT_MS = 1_000
TASK_S = 0.001
MAX_PENDING = 100


class Noting(BasicBolt):
    """Notes each number in a list in Redis, and takes its time."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    def prepare(self, context: TaskContext, collector: OutputCollector) -> None:
        super().prepare(context, collector)
        self._client = redis.Redis.from_url(self._url)

    def process(self, tup: Tuple, emit: Callable[..., None]) -> None:
        self._client.rpush(self._key, int(tup[0]))
        time.sleep(TASK_S)


class NotingObserver(Observer):
    """Notes the ids of complete messages."""

    def __init__(self, url: str, key: str) -> None:
        self._client, self._key = redis.Redis.from_url(url), key

    def on_complete(self, message_id: MessageId, latency_ms: int) -> None:
        self._client.rpush(self._key, json.dumps(message_id))


@dataclass
class Worker:
    """Starts such processes, and knows what they noted."""

    url: str
    client: Any
    namespace: str
    spec: dict[str, Any]

    def start(self) -> subprocess.Popen[bytes]:
        """Another process would wait until the lease of a killed one is over."""
        with Acker(self.url, namespace=self.namespace, timeout_ms=TIMEOUT_MS) as acker:
            lease = acker.shards.keys[0].lease(acker.spout_number(f"{TOPOLOGY}/source/0"))
            acker.shards.transport.run_one(Command(0, ("DEL", lease)))
        options = json.dumps({"url": self.url, "namespace": self.namespace, "spec": self.spec})
        return subprocess.Popen([sys.executable, "-m", "tests.spouts.worker", options])

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    def processed(self) -> list[int]:
        return [int(one) for one in self.client.lrange(f"{self.namespace}:processed", 0, -1)]

    def completed(self) -> list[MessageId]:
        return [json.loads(one) for one in self.client.lrange(f"{self.namespace}:completed", 0, -1)]


def main(url: str, namespace: str, spec: dict[str, Any]) -> None:
    with Acker(url, namespace=namespace) as acker:
        runner = LocalRunner(
            topology(spout_from(spec), Noting(url, f"{namespace}:processed")),
            acker,
            max_pending=MAX_PENDING,
            retries=RetryPolicy(first_ms=50),
            observer=NotingObserver(url, f"{namespace}:completed"),
        )
        with runner:
            assert runner.wait_until_idle(timeout_s=PATIENCE_S)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
