"""Real servers for tests: standalone, TLS, unix socket and cluster, all on 127.0.0.1.

Each has free ports and a temporary directory of its own, and ends with stop() or with the test run.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import redis
import trustme
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from tests.binaries import require_binary, require_faketime
from tests.waiting import wait_until

HOST = "127.0.0.1"

#: Tries with a new port, should another process take the one that was free a moment ago.
PORT_ATTEMPTS = 10

#: A cluster node listens on its port and on this much above it.
CLUSTER_BUS_OFFSET = 10_000
CLUSTER_SLOTS = 16_384

#: No automatic snapshots; a test that wants persistence asks for it.
COMMON_ARGS = ("--bind", HOST, "--save", "")

#: Whatever the server has answered survives its death.
EVERY_WRITE_TO_DISK = ("--appendonly", "yes", "--appendfsync", "always")


class ServerEnded(RuntimeError):
    """Raised when a server ends instead of answering."""


class Server:
    """One server process. After restart() it has the same port and directory."""

    def __init__(self, command: list[str], *, url: str, directory: Path, temporary: bool = True) -> None:
        self.url = url
        self.directory = directory
        self._command = command
        self._temporary = temporary
        self._launch()

    @property
    def port(self) -> int:
        return int(self.url.partition("?")[0].rpartition(":")[2].partition("/")[0])

    @property
    def pid(self) -> int:
        return self._process.pid

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis.from_url(self.url, **options)

    def kill(self) -> None:
        """SIGKILL: the server loses whatever it has not written."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        """Start again on the same port and directory, after SIGKILL if it still runs."""
        self.kill()
        self._launch()
        self.wait_ready()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        _running.discard(self)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def wait_ready(self, timeout_s: float = 10.0) -> None:
        with self.client(socket_timeout=1.0, retry=Retry(NoBackoff(), 0)) as client:
            wait_until(lambda: self._answers(client), timeout_s)

    def _answers(self, client: redis.Redis) -> bool:
        if self._process.poll() is not None:
            log = (self.directory / "server.log").read_text(errors="replace")
            raise ServerEnded(f"{self._command} ended: {log[-500:]}")
        # A server that is still loading its data answers with an error.
        with contextlib.suppress(redis.RedisError):
            return bool(client.ping() and client.info("server")["process_id"] == self.pid)
        return False

    def _launch(self) -> None:
        with (self.directory / "server.log").open("ab") as log:
            # A process group of its own, so that one signal reaches the server and its savers.
            self._process = subprocess.Popen(
                self._command, cwd=self.directory, stdout=log, stderr=log, start_new_session=True
            )
        _running.add(self)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


_running: set[Server] = set()


@atexit.register
def stop_all() -> None:
    for server in list(_running):
        server.stop()


def start_server(kind: str, *config_args: str, port: int | None = None, directory: Path | None = None) -> Server:
    """A standalone server: start_server("redis-7.0", "--appendonly", "yes").

    A directory that is passed in outlives the server.
    """
    return start_command(
        [require_binary(kind), "--port", "{port}", *COMMON_ARGS, *config_args],
        url=f"redis://{HOST}:{{port}}/0",
        port=port,
        directory=directory or new_directory(),
        temporary=directory is None,
    )


def start_server_with_clock(kind: str, *config_args: str) -> Server:
    """A server whose clock is set by what is written to `directory`/clock: "+5" is five seconds ahead. Debian's Redis
    does not run with the library that does it."""
    directory = new_directory()
    clock = directory / "clock"
    clock.write_text("+0")
    shows = {
        "LD_PRELOAD": require_faketime(),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    setting = ["env", *(f"{name}={value}" for name, value in shows.items())]
    return start_command(
        [*setting, require_binary(kind), "--port", "{port}", *COMMON_ARGS, *config_args],
        url=f"redis://{HOST}:{{port}}/0",
        directory=directory,
    )


def start_tls_server(kind: str = "redis-7.0", *config_args: str) -> Server:
    """A server that speaks TLS alone; the URL names the CA file, which is also `directory`/ca.pem."""
    binary = require_binary(kind)
    directory = new_directory()
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST, "localhost")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    certificate.private_key_and_cert_chain_pem.write_to_path(directory / "server.pem")
    files = ["--tls-ca-cert-file", "ca.pem", "--tls-cert-file", "server.pem", "--tls-key-file", "server.pem"]
    only_tls = ["--port", "0", "--tls-port", "{port}", "--tls-auth-clients", "no"]
    return start_command(
        [binary, *only_tls, *files, *COMMON_ARGS, *config_args],
        url=f"rediss://{HOST}:{{port}}/0?ssl_ca_certs={directory}/ca.pem",
        directory=directory,
    )


def start_unix_server(kind: str = "redis-7.0", *config_args: str) -> Server:
    """A server that listens on a unix socket alone."""
    binary = require_binary(kind)
    directory = new_directory()
    return start_command(
        [binary, "--port", "0", "--unixsocket", "redis.sock", *COMMON_ARGS, *config_args],
        url=f"unix://{directory}/redis.sock",
        directory=directory,
    )


@dataclass(frozen=True)
class Cluster:
    """A Redis Cluster of primaries without replicas."""

    nodes: list[Server]

    @property
    def url(self) -> str:
        return f"redis+cluster://{HOST}:{self.nodes[0].port}"

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def client(self, **options: Any) -> RedisCluster:
        return RedisCluster(host=HOST, port=self.nodes[0].port, **options)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


def start_cluster(kind: str = "redis-7.0", nodes: int = 3, *config_args: str) -> Cluster:
    """A real cluster of `nodes` primaries that share the slots."""
    binary = require_binary(kind)
    args = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
    servers = [
        start_command(
            [binary, "--port", "{port}", *COMMON_ARGS, *args, *config_args],
            url=f"redis://{HOST}:{{port}}/0",
            directory=new_directory(),
            cluster=True,
        )
        for _ in range(nodes)
    ]
    for index, server in enumerate(servers):
        slots = range(CLUSTER_SLOTS * index // nodes, CLUSTER_SLOTS * (index + 1) // nodes)
        with server.client() as client:
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", index + 1)
            client.execute_command("CLUSTER ADDSLOTS", *slots)
            client.execute_command("CLUSTER MEET", HOST, servers[0].port)
    for server in servers:
        with server.client() as client:
            wait_until(partial(_is_whole, client, nodes), 30)
    return Cluster(servers)


def _is_whole(client: Any, nodes: int) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return bool(
        info["cluster_state"] == "ok"
        and int(info["cluster_known_nodes"]) == nodes
        and int(info["cluster_slots_ok"]) == CLUSTER_SLOTS
    )


def start_command(
    command: list[str],
    *,
    url: str,
    directory: Path,
    port: int | None = None,
    temporary: bool = True,
    cluster: bool = False,
) -> Server:
    """Start the command and wait for its answer; {port} stands for `port`, or else a free one."""
    for attempt in range(1, PORT_ATTEMPTS + 1):
        chosen = str(port or _free_port(cluster=cluster))
        server = Server(
            [word.replace("{port}", chosen) for word in command],
            url=url.replace("{port}", chosen),
            directory=directory,
            temporary=temporary,
        )
        try:
            server.wait_ready()
        except ServerEnded as error:
            if port is not None or attempt == PORT_ATTEMPTS or "in use" not in str(error):
                server.stop()
                raise
            _running.discard(server)
            continue
        return server
    raise AssertionError("not reached")


def new_directory() -> Path:
    # Short, because a unix socket's path has at most 107 bytes.
    return Path(tempfile.mkdtemp(prefix="acker-", dir="/tmp"))


def _free_port(*, cluster: bool) -> int:
    if not cluster:
        return _port_if_free(0) or _free_port(cluster=False)
    while True:
        port = random.randint(15_000, 32_000)
        if _port_if_free(port) and _port_if_free(port + CLUSTER_BUS_OFFSET):
            return port


def _port_if_free(port: int) -> int | None:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return None
        found: int = probe.getsockname()[1]
        return found
