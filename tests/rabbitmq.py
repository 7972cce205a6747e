"""A RabbitMQ for tests, on 127.0.0.1: ports, port mapper, cookie and directory of its own."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pika  # type: ignore[import-untyped]
from pika import exceptions as amqp_errors

from tests.binaries import require_rabbitmq
from tests.waiting import wait_until

HOST = "127.0.0.1"

#: A first start writes its database, which takes a while on a busy machine.
START_S = 90.0

#: One scheduler that does not spin, and no port that other machines could reach.
ERLANG_OPTIONS = "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}"

CONFIGURATION = """
listeners.tcp.1 = {host}:{port}
log.console.level = warning
disk_free_limit.absolute = 1MB
"""


class RabbitMq:
    """One broker. It ends with stop() or with the test run."""

    def __init__(self) -> None:
        server, mapper = require_rabbitmq()
        self._directory = Path(tempfile.mkdtemp(prefix="acker-rabbitmq-", dir="/tmp"))
        self.port, mapper_port, node_port = _free_ports(3)
        with self._log_path.open("wb") as log:
            self._processes = [
                subprocess.Popen(command, env=env, cwd=self._directory, stdout=log, stderr=log, start_new_session=True)
                for command, env in (
                    ([mapper, "-port", str(mapper_port), "-address", HOST], dict(os.environ)),
                    ([server], self._environment(mapper_port, node_port)),
                )
            ]
        atexit.register(self.stop)
        wait_until(self._answers, START_S, poll_s=0.1)

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    @staticmethod
    def url_at(port: int, options: str = "") -> str:
        return f"amqp://guest:guest@{HOST}:{port}/%2F{options}"

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        try:
            yield connection.channel()
        finally:
            connection.close()

    def declare(self, queue: str, **arguments: str) -> None:
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True, arguments=arguments)

    def publish(self, queue: str, messages: Iterable[tuple[str | None, bytes]], **properties: Any) -> None:
        """Sends pairs of message id and body, and waits until the queue has them."""
        with self.channel() as channel:
            channel.tx_select()
            for message_id, body in messages:
                channel.basic_publish("", queue, body, pika.BasicProperties(message_id=message_id, **properties))
            channel.tx_commit()

    def take_all(self, queue: str) -> list[tuple[str | None, bytes]]:
        """Removes what is ready in a queue."""
        with self.channel() as channel:
            found: list[tuple[str | None, bytes]] = []
            while True:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    return found
                found.append((properties.message_id, body))

    def count(self, queue: str) -> int:
        """Messages that are ready; those that a consumer holds do not count."""
        return self._look(queue).message_count  # type: ignore[no-any-return]

    def consumers(self, queue: str) -> int:
        return self._look(queue).consumer_count  # type: ignore[no-any-return]

    def delete(self, queue: str) -> None:
        with self.channel() as channel:
            channel.queue_delete(queue)

    def stop(self) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
        atexit.unregister(self.stop)

    def _look(self, queue: str) -> Any:
        with self.channel() as channel:
            return channel.queue_declare(queue, passive=True).method

    @property
    def _log_path(self) -> Path:
        return self._directory / "server.log"

    def _environment(self, mapper_port: int, node_port: int) -> dict[str, str]:
        at = self._directory
        cookie = at / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(10))
        cookie.chmod(0o400)
        (at / "env.conf").touch()
        (at / "rabbitmq.conf").write_text(CONFIGURATION.format(host=HOST, port=self.port))
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(at),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(mapper_port),
            "RABBITMQ_NODENAME": f"acker{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(node_port),
            "RABBITMQ_CONF_ENV_FILE": str(at / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(at / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(at / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(at / "mnesia"),
            "RABBITMQ_LOG_BASE": str(at / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG_OPTIONS,
        }

    def _answers(self) -> bool:
        if any(process.poll() is not None for process in self._processes):
            log = self._log_path.read_text(errors="replace")
            self.stop()
            raise RuntimeError(f"RabbitMQ ended: {log[-1000:]}")
        with contextlib.suppress(amqp_errors.AMQPError, OSError), self.channel():
            return True
        return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]
